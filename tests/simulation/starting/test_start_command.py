"""``sotto-simulate start``: from a folder of text to a model that runs begin with."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.compression.packed_model import read_packed
from server.config.plans import make_plan
from server.releases.files import read_release
from server.releases.starting_model import StartingModelError, starting_parameters
from simulation.cli import main
from simulation.config.simulation import SimulationConfig
from simulation.starting import training

Started = Callable[..., int]
Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]

WORDS = ("see", "you", "later", "than", "we", "thought", "about", "it")
WIDTH = 32


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Return a folder of one user's lines, each of three words in an order of their own."""
    draw = random.Random(1)
    lines = []
    for _ in range(4000):
        first = draw.randrange(len(WORDS))
        lines.append(" ".join(WORDS[(first + step) % len(WORDS)] for step in range(3)))
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "someone.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "eight.txt"
    path.write_text("".join(f"{word}\n" for word in ("<unk>", "<eos>", *WORDS)))
    return path


@pytest.fixture
def started(text: Path, words: Path, tmp_path: Path) -> Started:
    """Return the command with this text and list, whose last arguments say the rest."""

    def run(out: str, *more: str) -> int:
        given = ["--text", str(text), "--words", str(words), "--width", str(WIDTH)]
        where = ["--out", str(tmp_path / out)]
        return main(["start", *given, *where, "--language", "de", "--epochs", "20", *more])

    return run


@pytest.mark.slow
def test_a_start_learns_what_follows_what_and_is_released_and_packed(
    started: Started,
    text: Path,
    words: Path,
    configured: Configured,
    capsys: pytest.CaptureFixture[str],
) -> None:
    packed = text.with_name("german.sotto")
    measured = ["--measure", f"folder={text}", "--pack", str(packed), "--json"]

    assert started("out", *measured) == 0

    told = json.loads(capsys.readouterr().out)
    # Two words of three follow from the one before; what begins a line is one of eight.
    assert 1 / 2 < told["figures"]["folder.top1_recall"] <= 2 / 3 + 1 / 3 * 1 / 4
    # A counted bigram has those two words always.
    assert 2 / 3 <= told["bigram"]["folder.top1_recall"] <= 2 / 3 + 1 / 3 * 1 / 4
    assert told["packed_figures"]["folder.top1_recall"] == pytest.approx(
        told["figures"]["folder.top1_recall"], abs=0.05
    )
    assert told["packed_bytes"] == packed.stat().st_size
    description = read_packed(packed).description
    assert description.vocabulary is not None
    assert (description.language, description.vocabulary.size) == ("de", len(WORDS) + 2)
    assert [(text.name, text.times, text.unknown_words) for text in description.texts] == [
        ("folder", 1, 0.0)
    ]
    assert description.figures == told["packed_figures"]
    # Both begin a run, the packed one with what it rounded the other to.
    whole, small = (
        _start_of(configured, words, start) for start in (told["release"], told["packed"])
    )
    assert torch.equal(whole, torch.tensor(read_release(Path(told["release"])).parameters))
    assert torch.equal(small, torch.tensor(read_packed(packed).parameters))
    assert 0 < float((whole - small).abs().max()) < float(whole.abs().max()) / 127


@pytest.mark.slow
def test_a_start_that_was_interrupted_ends_in_the_same_bits(
    started: Started, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 7)
    # 24 steps in three passes of eight: 17 are in the third, three after a checkpoint.
    few = ("--epochs", "3")
    assert started("whole", *few) == 0
    with monkeypatch.context() as patched:
        patched.setattr("simulation.starting.steps_bar.StepsBar.stepped", _interrupt_after(17))
        assert started("parts", *few) == 1
    assert not (tmp_path / "parts" / "releases").exists()

    assert started("parts", *few) == 0

    digests = [
        read_release(tmp_path / out / "releases" / "latest").record.parameters_sha256
        for out in ("whole", "parts")
    ]
    assert digests[0] == digests[1]
    # Its text is part of what it is.
    (text / "someone.txt").write_text("see you later\n" * 20)
    assert started("parts", *few) == 1


def test_a_checkpoint_that_is_damaged_is_told(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert started("out", "--epochs", "1") == 0
    checkpoint = tmp_path / "out" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])

    assert started("out", "--epochs", "1") == 1

    assert "checkpoint.pt cannot be gone on with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--text", "redit=x"], "a text must be of manual, ptb, wikitext2"),
        (["--text", "irc=x:0"], "must read a text at least once, got 0"),
        (["--text", "nowhere"], "nowhere must be a folder of text files"),
        (["--language", "german"], "language must be a BCP 47 tag such as en or pt-BR"),
        (["--measure", "folder=nowhere"], "nowhere must be a folder of text files"),
        (["--words", "nowhere.txt"], "nowhere.txt"),
        pytest.param(
            ["--device", "cuda"],
            "cuda was asked for, but torch finds none",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA"),
        ),
    ],
)
def test_what_cannot_be_learnt_from_is_told_before_anything_is_made(
    started: Started,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    told: str,
) -> None:
    assert started("out", *more) == 1

    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_language_without_blanks_has_no_start(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--text", str(text), "--language", "th", "--out", str(tmp_path / "out")]

    assert main(["start", *given]) == 1

    assert "got th: Thai has none" in capsys.readouterr().err


def test_text_of_another_language_is_told(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "someone.txt").write_text("до скорого\n" * 20)

    assert started("out", "--text", str(folder)) == 1

    told = capsys.readouterr().err
    assert "all of its 32 are unknown; its letters are Cyrillic 100 %; is it of this" in told


def _interrupt_after(steps: int) -> Callable[..., None]:
    def stepped(_: object, done: int, loss: float) -> None:
        if done == steps:
            raise KeyboardInterrupt

    return stepped


def _start_of(configured: Configured, words: Path, start: str) -> torch.Tensor:
    size = len(WORDS) + 2
    config, _ = configured(
        f'start_from="{start}"',
        f'vocabulary={{path="{words}",size={size}}}',
        f"model.vocabulary_size={size}",
        f"model.hidden_size={WIDTH}",
    )
    wider, _ = configured(f'start_from="{start}"')
    with pytest.raises(StartingModelError, match="has another: eight of 10 words"):
        starting_parameters(wider, make_plan(wider, "0" * 32))
    return starting_parameters(config, make_plan(config, "0" * 32))
