import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.listening.recogniser import (
    MelBatch,
    RecogniserSettings,
    SpeechRecogniser,
    stack_mels,
    step_count,
)

SETTINGS = RecogniserSettings(mel_count=8, channels=6, hidden_size=5)


def recogniser() -> SpeechRecogniser:
    made = SpeechRecogniser(SETTINGS)
    made.initialise(torch.Generator().manual_seed(1))
    return made.eval()


def mel(frames: int, seed: int = 2) -> Tensor:
    return torch.randn(8, frames, generator=torch.Generator().manual_seed(seed))


def test_a_clip_is_heard_alike_whatever_it_is_batched_with() -> None:
    short, long = mel(11), mel(30, seed=3)

    together, steps = recogniser()(stack_mels([short, long]))
    alone, _ = recogniser()(stack_mels([short]))

    assert steps.tolist() == [6, 15]
    assert_close(together[0, :6], alone[0])


def test_what_lies_at_padding_is_not_heard() -> None:
    batch = stack_mels([mel(11), mel(30, seed=3)])
    dirty = batch.mels.clone()
    dirty[0, :, 11:] = 100.0

    clean, _ = recogniser()(batch)
    heard, _ = recogniser()(MelBatch(dirty, batch.frame_counts))

    assert_close(heard[0, :6], clean[0, :6])


def test_what_comes_later_is_heard_before() -> None:
    # The GRU reads backwards too: another end changes the first step, 20 frames before it.
    changed = mel(30)
    changed[:, 25:] += torch.randn(8, 5, generator=torch.Generator().manual_seed(4))

    before, _ = recogniser()(stack_mels([mel(30)]))
    after, _ = recogniser()(stack_mels([changed]))

    assert not torch.allclose(before[0, 0], after[0, 0])


def test_loudness_does_not_matter() -> None:
    quiet, _ = recogniser()(stack_mels([mel(12) - 3.0]))
    loud, _ = recogniser()(stack_mels([mel(12)]))

    assert_close(quiet, loud)


def test_the_loss_is_that_of_all_paths_by_hand() -> None:
    # Two steps for one letter: of all paths, "a-", "-a" and "aa" spell it.
    made, batch = recogniser(), stack_mels([mel(4)])

    heard, steps = made(batch)

    assert steps.tolist() == [2]
    chance = heard[0].exp()
    spelt = chance[0, 3] * chance[1, 0] + chance[0, 0] * chance[1, 3] + chance[0, 3] * chance[1, 3]
    assert_close(made.loss(batch, [[3]]), -spelt.log())


def test_steps_are_half_the_frames() -> None:
    assert step_count(torch.tensor([1, 2, 3, 4])).tolist() == [1, 1, 2, 2]


def test_the_same_generator_draws_the_same_network() -> None:
    first, second = recogniser().state_dict(), recogniser().state_dict()

    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(8, 0), "with a frame at least"),
        (torch.zeros(7, 3), r"shape \(8, frames\)"),
        (torch.zeros(3), r"shape \(8, frames\)"),
        (torch.full((8, 2), math.nan), "got 16 values that are not"),
    ],
)
def test_what_cannot_be_heard_is_refused(bad: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recogniser().read(bad)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size must be >= 1, got 0"):
        RecogniserSettings(hidden_size=0)
