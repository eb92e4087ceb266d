"""A run of the preset under a guarantee begins with the start that it names."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from models.compression.packed_model import read_packed
from models.plan.plan import VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from server.releases.files import read_release
from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.population.population import TextPopulation
from simulation.runs.runner import RunOptions, run_simulation
from tests.packed_start import write_packed_start
from tests.simulation.conftest import VOCABULARY_SIZE

PRESET = "keyboard-central"
MODEL = GruLmSettings(vocabulary_size=VOCABULARY_SIZE, hidden_size=8, tied=True)
TINY = (
    f"model.vocabulary_size={VOCABULARY_SIZE}",
    f"vocabulary.size={VOCABULARY_SIZE}",
    "model.hidden_size=8",
    "training.precision=float32",
    "rounds={cap=1, cohort_size=6, quorum=6, deadline_s=60.0}",
    # The people learn, and a step this short leaves the model and its noise where they were.
    "aggregation.server_step_size=1e-12",
)


def test_a_run_under_a_guarantee_begins_with_the_shipped_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, population: TextPopulation
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr("models.data.__file__", str(package / "__init__.py"))
    listed = shipped_vocabulary(VOCABULARY_SIZE)
    words = VocabularySettings(name="few", size=len(listed), sha256=listed.sha256.hex())
    drawn = np.random.default_rng(7).standard_normal(schema_of(MODEL).element_count)
    start = write_packed_start(
        package / "english-start.sotto", MODEL, words, drawn.astype(np.float32), language="en"
    )
    tables = with_settings(read_tables(PRESET), [parse_override(text) for text in TINY])

    run_simulation(config_from(tables, PRESET), tables, population, tmp_path / "run", RunOptions())

    released = read_release(tmp_path / "run" / "releases" / "latest")
    assert released.plan.privacy.guarantees_privacy
    assert_close(
        torch.tensor(released.parameters),
        torch.tensor(read_packed(start).parameters),
        atol=1e-6,
        rtol=0,
    )
