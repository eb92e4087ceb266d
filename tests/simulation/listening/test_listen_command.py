from pathlib import Path

import msgspec
import pytest
import torch

from simulation.cli import main
from simulation.listening.sound_writer import write_wav
from simulation.listening.table import ListeningReport
from tests.simulation.listening.stand_ins import RATE, TRAINED, Sung

QUICK = ("--clips", "1", "--epochs", "1", "--iterations", "2")


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Return a folder of one singer's four recordings with their texts."""
    folder = tmp_path / "anna"
    for words in TRAINED:
        write_wav(
            folder / f"{words}.wav", torch.from_numpy(Sung(words).read().channels[:, 0]), RATE
        )
        (folder / f"{words}.txt").write_text(words)
    return folder


@pytest.mark.slow
def test_a_corpus_is_listened_to_by_itself_and_the_recogniser_is_kept(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "heard"
    command = ["listen", "--copy-synthesis", "recordings", "--data", str(recordings)]
    command += ["--to", str(to), "--json", *QUICK]

    assert main(command) == 0
    first = msgspec.json.decode(capsys.readouterr().out, type=ListeningReport)
    kept = (to / "recogniser.safetensors").read_bytes()
    assert main(command) == 0

    again = capsys.readouterr()
    assert [row.kind for row in first.voices] == ["reference", "ceiling", "floor", "floor"]
    assert msgspec.json.decode(again.out, type=ListeningReport) == first
    assert "training" not in again.err
    assert (to / "recogniser.safetensors").read_bytes() == kept
    assert any("No voice is under test" in note for note in first.notes)
    assert main([*command, "--train-recogniser"]) == 0
    assert "training a recogniser on 3 clips, 1 epochs" in capsys.readouterr().err


def test_a_recogniser_of_another_corpus_is_refused(
    recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["listen", "--copy-synthesis", "recordings", "--data", str(recordings)]
    command += ["--to", str(tmp_path / "heard"), *QUICK]
    assert main(command) == 0
    (recordings / "abcd.txt").write_text("abba")
    capsys.readouterr()

    assert main(command) == 1
    assert "other clips" in capsys.readouterr().err


def test_what_cannot_be_listened_to_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["listen", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["listen", "--copy-synthesis", "nothing"]) == 1
    assert "must be one of espeak, espeak-one, ljspeech" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["listen"])
