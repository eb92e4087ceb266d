"""The steps of a start: as many as were told, whatever the length of the text."""

from pathlib import Path

import pytest
import torch

from simulation.starting import training
from simulation.starting.texts import Corpus
from simulation.starting.training import Recipe, learn, step_count

EPOCHS = 2


def recipe_of(corpus: Corpus) -> Recipe:
    return Recipe(
        language="en",
        words_sha256="0" * 64,
        vocabulary_size=5,
        width=2,
        epochs=EPOCHS,
        seed=1,
        texts=(),
        text_sha256=corpus.sha256,
    )


@pytest.mark.parametrize(
    ("tokens", "steps"),
    # 64 pieces side by side where each has two tokens, in windows of 32.
    [(2, 1), (3, 1), (127, 1), (128, 1), (64 * 32, 1), (64 * 32 + 1, 2), (64 * 96 - 1, 3)],
)
def test_every_step_is_told_once_and_an_epoch_has_what_the_text_gives(
    tmp_path: Path, tokens: int, steps: int
) -> None:
    corpus = Corpus((torch.arange(tokens) % 4 + 1,), (), "0" * 64)
    told: list[int] = []

    learn(recipe_of(corpus), corpus, tmp_path / "kept.pt", lambda done, _: told.append(done))

    assert told == list(range(1, EPOCHS * steps + 1))
    assert step_count(recipe_of(corpus), corpus) == EPOCHS * steps


def test_early_text_has_its_steps_in_the_first_half(tmp_path: Path) -> None:
    piece = torch.arange(64 * 32) % 4 + 1
    corpus = Corpus((piece,), (), "0" * 64, early=(piece, piece))
    told: list[int] = []

    learn(recipe_of(corpus), corpus, tmp_path / "kept.pt", lambda done, _: told.append(done))

    # Three windows in the first of two epochs, one in the second.
    assert told == [1, 2, 3, 4]
    assert step_count(recipe_of(corpus), corpus) == 4


@pytest.mark.parametrize("done", [1, 2, 3])
def test_a_start_with_early_text_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 1)
    # Three windows in the first of two epochs, one in the second.
    generator = torch.Generator().manual_seed(3)
    pieces = [torch.randint(1, 5, (64 * 32,), generator=generator) for _ in range(3)]
    corpus = Corpus((pieces[0],), (), "0" * 64, early=tuple(pieces[1:]))

    def stop_after(step: int, loss: float) -> None:
        if step == done:
            raise KeyboardInterrupt

    whole = learn(recipe_of(corpus), corpus, tmp_path / "whole.pt", lambda step, loss: None)
    with pytest.raises(KeyboardInterrupt):
        learn(recipe_of(corpus), corpus, tmp_path / "parts.pt", stop_after)
    parts = learn(recipe_of(corpus), corpus, tmp_path / "parts.pt", lambda step, loss: None)

    assert torch.equal(parts, whole)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_learns_as_fast_as_the_processor(tmp_path: Path) -> None:
    corpus = Corpus((torch.arange(64 * 320) % 4 + 1,), (), "0" * 64)
    here: list[float] = []
    there: list[float] = []

    learn(recipe_of(corpus), corpus, tmp_path / "1", lambda _, loss: here.append(loss))
    learnt = learn(
        recipe_of(corpus), corpus, tmp_path / "2", lambda _, loss: there.append(loss), device="cuda"
    )

    assert learnt.device.type == "cpu"
    # Dropout's draws differ; the first losses are of the same parameters, and both then fall.
    assert there[0] == pytest.approx(here[0], rel=0.05)
    assert there[-1] == pytest.approx(here[-1], rel=0.2)
    assert there[-1] < 0.9 * there[0]


def test_a_text_of_one_token_is_too_short(tmp_path: Path) -> None:
    corpus = Corpus((torch.tensor([2]),), (), "0" * 64)

    with pytest.raises(ValueError, match="at least 2 tokens, got 1"):
        learn(recipe_of(corpus), corpus, tmp_path / "kept.pt", lambda done, loss: None)
