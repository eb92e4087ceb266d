import math

import pytest
import torch

from models.listening.heard_letters import heard_letters
from models.listening.recogniser import RecogniserSettings
from simulation.listening.recogniser_training import (
    LabelledMel,
    TrainingSettings,
    train_recogniser,
)

NETWORK = RecogniserSettings(mel_count=12, channels=24, hidden_size=24)


def spelt(text: str, name: str = "clip") -> LabelledMel:
    """Return six frames a character, every character a spectrum of its own."""
    frames = [
        2 * torch.randn(12, 1, generator=torch.Generator().manual_seed(ord(letter))).expand(12, 6)
        for letter in heard_letters(text)
    ]
    return LabelledMel(name, torch.cat(frames, dim=1), text)


@pytest.mark.slow
def test_two_clips_are_soon_read_without_a_mistake() -> None:
    clips = [spelt(" noon, sea."), spelt(" a tea!")]
    losses: list[float] = []

    recogniser = train_recogniser(
        clips,
        network=NETWORK,
        training=TrainingSettings(epochs=100, batch_size=2, learning_rate=1e-2),
        epoch_finished=lambda epoch, loss: losses.append(loss),
    )

    assert [recogniser.read(clip.mel) for clip in clips] == ["noon sea", "a tea"]
    assert len(losses) == 100
    assert losses[-1] < 0.2 * losses[0]


def test_the_same_clips_and_settings_give_the_same_recogniser() -> None:
    clips = [spelt(" a sea."), spelt(" no tea."), spelt(" an eon.")]
    training = TrainingSettings(epochs=2, batch_size=2)

    first, second = (
        train_recogniser(clips, network=NETWORK, training=training).state_dict() for _ in range(2)
    )

    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (LabelledMel("x/1", torch.zeros(12, 40), " !."), "x/1: its text must have a letter"),
        # Seven characters, and a blank between the doubled ones: eight steps are sixteen frames.
        (LabelledMel("x/2", torch.zeros(12, 14), " goodbye."), "x/2: it must have 8 steps.*got 7"),
        (LabelledMel("x/3", torch.full((12, 9), math.nan), " a."), "x/3: .*finite, got 108"),
        (LabelledMel("x/4", torch.zeros(80, 9), " a."), r"x/4: .*shape \(12, frames\)"),
    ],
)
def test_a_clip_that_teaches_nothing_is_named(clip: LabelledMel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_recogniser(
            [spelt(" a sea."), clip], network=NETWORK, training=TrainingSettings(epochs=1)
        )


def test_no_clips_and_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        train_recogniser([], network=NETWORK, training=TrainingSettings())
    with pytest.raises(ValueError, match="epochs must be >= 1, got 0"):
        TrainingSettings(epochs=0)
    with pytest.raises(ValueError, match=r"learning_rate must be in \(0, 1\), got nan"):
        TrainingSettings(learning_rate=math.nan)
