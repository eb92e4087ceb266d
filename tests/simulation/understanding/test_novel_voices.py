"""A finished voice learns to sound like someone new from seconds of their speech."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models.speech_examples import SpeechClip, SpeechExamples
from simulation.cli import main
from tests.simulation.listening.test_run_voices import SINGERS, TOML, finished_run


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run of two singers' voices that kept the third out, and all recordings."""
    settings = TOML.replace("[model]\n", "novel_share = 0.3\n\n[model]\n", 1)
    return finished_run(tmp_path_factory.mktemp("novel"), settings, SINGERS | {"cleo": "klmn"})


def curve_of(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, Any]:
    run, data = folders
    png = run.with_name("novel.png")
    command = ["novel", str(run), "--data", str(data), "--png", str(png), "--epochs", "3", *more]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    curve: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])[str(run)]
    return curve


def test_who_speaks_is_fitted_and_nothing_else(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    everything = curve_of(folders, capsys)
    seconds = curve_of(folders, capsys, "--seconds", "0.5")

    for curve in (everything, seconds):
        # A vector of four numbers says who speaks.
        assert (curve["figure"], curve["novel_clients"], curve["fitted_values"]) == ("mel_l1", 1, 4)
        assert curve["values"][3] < curve["values"][0]
    # The same voice before any fitting; then one knows more of it than the other.
    assert everything["values"][0] == seconds["values"][0]
    assert everything["values"][1:] != seconds["values"][1:]


def test_seconds_are_taken_clip_by_clip() -> None:
    clips = [
        SpeechClip(torch.full((frames, 2), float(frames)), torch.tensor([1]))
        for frames in (4, 3, 5)
    ]
    examples = SpeechExamples.of(clips)

    kept = [examples.at_most(count).lengths[:, 0].tolist() for count in (0, 4, 6, 7, 11, 12, 99)]
    assert kept == [[4], [4], [4], [4, 3], [4, 3], [4, 3, 5], [4, 3, 5]]


def test_seconds_of_no_speech_are_refused(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = folders
    command = ["novel", str(run), "--data", str(data), "--png", str(tmp_path / "n.png")]
    assert main([*command, "--seconds", "0"]) == 1
    assert "seconds of speech must be > 0 and finite, got 0.0" in capsys.readouterr().err
