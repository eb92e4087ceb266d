"""A federation that starts from a learned model suggests words before anybody has trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from export.cli import main as export
from models.compression.packed_model import read_packed
from models.plan.plan import VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.text.vocabulary import shipped_vocabulary
from server.releases.files import read_release
from tests.integration.federation import Federation, settings
from tests.packed_start import write_packed_start

WORDS = shipped_vocabulary(200)
MODEL = GruLmSettings(vocabulary_size=200, hidden_size=8)
KNOWN = ("time", "more", "there")


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """Return a packed start that says the same three words whatever comes before."""
    schema = schema_of(MODEL)
    parameters = np.zeros(schema.element_count, np.float32)
    bias = parameters[schema.slices["output.bias"]]
    bias[WORDS.encode(KNOWN)] = 3, 2, 1
    words = VocabularySettings(name="english-10k", size=200, sha256=WORDS.sha256.hex())
    return write_packed_start(tmp_path / "start.sotto", MODEL, words, parameters)


@pytest.mark.slow
def test_round_0_is_the_start_and_its_export_suggests_what_the_start_knows(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = Federation(tmp_path / "f", f'start_from = "{start}"\n{settings()}')
    federation.start()
    try:
        latest = federation.folder.releases / "latest"
        assert latest.readlink().name == "000000"
        assert read_release(latest).record.parameters_sha256 == (
            read_packed(start).description.parameters_sha256
        )
        assert export(["keyboard", str(federation.root), "--out", str(tmp_path / "b")]) == 0
        capsys.readouterr()
        assert export(["suggest", str(tmp_path / "b"), "see you ", "--json"]) == 0
    finally:
        federation.stop()

    shown = json.loads(capsys.readouterr().out)["suggestions"]
    assert tuple(one["word"] for one in shown) == KNOWN
