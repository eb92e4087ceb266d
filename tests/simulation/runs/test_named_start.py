"""A run of the preset under a guarantee begins with the start that it names."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch.testing import assert_close

import models.data
from models.compression.packed_model import read_packed
from models.plan.plan import VocabularySettings, released_schema
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from models.vector.codec import named_tensors
from server.config.plans import make_plan
from server.releases.files import read_release
from server.releases.starting_model import starting_parameters
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


def test_voices_begin_with_the_shipped_start_and_a_vector_of_nobody() -> None:
    config = config_from(read_tables("speech-espeak"), "speech-espeak")
    plan = make_plan(config, "0" * 32, cohort_size=1)
    packed = read_packed(Path(models.data.__file__).parent / "voices-start.sotto")
    model = packed.description.model
    named = named_tensors(schema_of(model), packed.parameters)

    begun = named_tensors(released_schema(plan), starting_parameters(config, plan).numpy())

    assert config.start_from == "voices"
    assert set(named) - set(begun) == {"speaker.vector"}
    assert not named["speaker.vector"].any()
    for name, tensor in begun.items():
        assert_array_equal(tensor, named[name])


def test_a_preset_is_run_without_its_start() -> None:
    tables = with_settings(read_tables(PRESET), [parse_override("start_from=none")])

    config = config_from(tables, PRESET)

    assert config_from(read_tables(PRESET), PRESET).start_from == "english"
    assert config.start_from is None
    left_out = {name: value for name, value in tables.items() if name != "start_from"}
    assert config == config_from(left_out, PRESET)
