"""Train a recogniser on the real clips of a corpus, on one processor core, in minutes.

Batches hold clips of like length, to save padding; the learning rate rises, then falls to zero.
Noise and a silenced band of channels, new at each step, keep the network from leaning on what only
real clips have.

References:
    [CTC] Graves et al., ICML 2006.
    [SpecAugment] Park et al., Interspeech 2019, arXiv:1904.08779: the band.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

from models.listening.heard_letters import encode_heard, heard_letters, steps_needed
from models.listening.recogniser import (
    MelBatch,
    RecogniserSettings,
    SpeechRecogniser,
    check_mel,
    stack_mels,
    step_count,
)
from models.settings.bounds import check_at_least
from simulation.listening.defaults import RECOGNISER_EPOCHS

_RISING = 0.15
_LARGEST_GRADIENT = 2.0
_NOISE = 0.3
_WIDEST_BAND = 0.15
# Lengths are shuffled by so much before they are sorted, so that batches differ by epoch.
_JITTER = 0.1


class TrainingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a recogniser is trained.

    Attributes:
        epochs: Passes over the clips.
        learning_rate: Adam's highest.
        seed: The seed of the first parameters, the batches and the noise.
    """

    epochs: int = RECOGNISER_EPOCHS
    batch_size: int = 16
    learning_rate: float = 4e-3
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "epochs", "batch_size")
        if not 0 < self.learning_rate < 1:
            raise ValueError(f"learning_rate must be in (0, 1), got {self.learning_rate}")


class LabelledMel(NamedTuple):
    """A training clip: natural log-mels, shape ``(mel, frames)``, the text and its numbers."""

    name: str
    mel: Tensor
    text: str


class _Example(NamedTuple):
    mel: Tensor
    numbers: list[int]


def train_recogniser(
    clips: Sequence[LabelledMel],
    *,
    network: RecogniserSettings,
    training: TrainingSettings,
    epoch_finished: Callable[[int, float], None] = lambda epoch, loss: None,
) -> SpeechRecogniser:
    """Return a trained recogniser in evaluation mode, reproducible at equal thread counts.

    ``epoch_finished`` gets the epoch, from 1, and its mean loss in nats per character.

    Raises:
        ValueError: If there is no clip, or one is not finite, says nothing, or is too short for its
            text; names it.
    """
    examples = [_checked(clip, network.mel_count) for clip in clips]
    if not examples:
        raise ValueError("a recogniser needs a clip to learn from, got none")
    generator = torch.Generator().manual_seed(training.seed)
    recogniser = SpeechRecogniser(network)
    recogniser.initialise(generator)
    optimiser = torch.optim.Adam(recogniser.parameters(), lr=training.learning_rate)
    step, last = 0, training.epochs * -(-len(examples) // training.batch_size)
    for epoch in range(1, training.epochs + 1):
        total = 0.0
        for batch in _batches(examples, training.batch_size, generator):
            for group in optimiser.param_groups:
                group["lr"] = training.learning_rate * _rate(step, last)
            total += _take_step(recogniser, optimiser, batch, generator) * len(batch)
            step += 1
        epoch_finished(epoch, total / len(examples))
    return recogniser.eval()


def _checked(clip: LabelledMel, mel_count: int) -> _Example:
    try:
        check_mel(clip.mel, mel_count)
        numbers = encode_heard(heard_letters(clip.text))
        if not numbers:
            raise ValueError("its text must have a letter, got none")
        steps = int(step_count(torch.tensor(clip.mel.shape[1])))
        if steps < steps_needed(numbers):
            raise ValueError(
                f"it must have {steps_needed(numbers)} steps for its text, got {steps}: either is "
                "cut short"
            )
    except ValueError as error:
        raise ValueError(f"{clip.name}: {error}; take it out") from None
    return _Example(clip.mel, numbers)


def _batches(
    examples: Sequence[_Example], size: int, generator: torch.Generator
) -> Iterator[list[_Example]]:
    lengths = torch.tensor([float(example.mel.shape[1]) for example in examples])
    lengths *= 1 + _JITTER * torch.rand(len(examples), generator=generator)
    order = lengths.argsort().tolist()
    starts = torch.arange(0, len(order), size)
    for start in starts[torch.randperm(len(starts), generator=generator)].tolist():
        yield [examples[place] for place in order[start : start + size]]


def _rate(step: int, last: int) -> float:
    """Return the share of the highest learning rate: up in a line, down to zero in another."""
    rising = max(1.0, _RISING * last)
    return min((step + 1) / rising, (last - step) / max(1.0, last - rising))


def _take_step(
    recogniser: SpeechRecogniser,
    optimiser: torch.optim.Optimizer,
    examples: Sequence[_Example],
    generator: torch.Generator,
) -> float:
    batch = _disturbed(stack_mels([example.mel for example in examples]), generator)
    loss = recogniser.loss(batch, [example.numbers for example in examples])
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    torch.nn.utils.clip_grad_norm_(recogniser.parameters(), _LARGEST_GRADIENT)
    optimiser.step()
    return loss.item()


def _disturbed(batch: MelBatch, generator: torch.Generator) -> MelBatch:
    """Return the batch with noise added, and one band of each clip at its channels' means."""
    mels, counts = batch
    noise = _NOISE * torch.randn(mels.shape, generator=generator)
    widest = int(_WIDEST_BAND * mels.shape[1])
    width = torch.randint(0, widest + 1, (len(mels), 1), generator=generator)
    low = (torch.rand(len(mels), 1, generator=generator) * (mels.shape[1] - width)).long()
    channels = torch.arange(mels.shape[1])
    band = (channels >= low) & (channels < low + width)
    return MelBatch((mels + noise).masked_fill(band[:, :, None], 0), counts)
