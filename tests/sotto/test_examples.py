"""The three scripts run as they stand, and end in what the commands would tell."""

from pathlib import Path

import pytest

import sotto
from examples.python import devices, noise, serving
from tests.sotto.conftest import SMALL


@pytest.fixture(scope="module")
def folder(run: sotto.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the run of the scripts in it, which they read."""
    made = tmp_path_factory.mktemp("examples")
    (made / "run").symlink_to(run.folder)
    return made


@pytest.mark.slow
def test_who_deploys_devices_sees_what_travels(folder: Path) -> None:
    sent = devices.main(folder)

    # 882 parameters of 4 bytes (floats) or of 1 (whole numbers, with scales), and what frames them.
    assert sent["float32"] > 4 * 882
    assert 882 < sent["int8"] < sent["float32"] / 3
    assert (folder / "perplexity.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_who_tunes_the_noise_sees_its_price(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = noise.main(folder)

    less, more = table.rows
    assert less.seeds == more.seeds == [1]
    # A smaller budget asks for more noise.
    assert float(less.choices["privacy.noise_multiplier"]) < float(
        more.choices["privacy.noise_multiplier"]
    )
    told = capsys.readouterr().out
    assert "spent at the end: 7.99" in told
    assert "after round 2: epsilon " in told


@pytest.mark.slow
def test_who_serves_models_gets_words(folder: Path, run: sotto.Run) -> None:
    words = serving.main(folder)

    keyboard = sotto.Keyboard.load(folder / "keyboard.zip")
    assert words == [one.word for one in keyboard.suggest("this is ")]
    assert len(words) == 3
    # Read, not made again: the run is the tests' own.
    assert run.figures["round"] == SMALL["rounds"]["cap"]
