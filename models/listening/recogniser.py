"""A small recogniser that writes down what it hears in a log-mel spectrogram.

Two convolutions halve the frames, a GRU reads them in both directions, and a linear layer gives
each step a distribution over characters and over nothing (CTC). It measures voices and is no
dictation, since it is trained on a handful of speakers.

References:
    [CTC] Graves et al., "Connectionist Temporal Classification", ICML 2006.
    [DeepSpeech2] Amodei et al., ICML 2016, arXiv:1512.02595: convolutions, recurrence, CTC.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.recurrence import Gru
from models.listening.heard_letters import NOTHING, SYMBOL_COUNT, collapse
from models.settings.bounds import check_at_least

STRIDE = 2
"""Frames that become one step: 43 steps a second at the usual hop, twice what fast speech needs."""

_KERNEL_SIZE = 5
_SPREAD = 2.0
"""Standard deviation, about, of speech's log-mels within a channel."""


class RecogniserSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large a recogniser is.

    Attributes:
        mel_count: Channels of the spectrograms.
        channels: Channels of the convolutions.
        hidden_size: Width of the GRU in each direction.
    """

    mel_count: int = 80
    channels: int = 96
    hidden_size: int = 96

    def __post_init__(self) -> None:
        check_at_least(self, 1, "mel_count", "channels", "hidden_size")


class MelBatch(NamedTuple):
    """Spectrograms of different lengths.

    Attributes:
        mels: Natural logarithms, anything at padding, shape ``(batch, mel, frames)``.
        frame_counts: Real frames, int64, shape ``(batch,)``.
    """

    mels: Tensor
    frame_counts: Tensor


class SpeechRecogniser(nn.Module):
    """Log-mels -> convolutions -> GRU in both directions -> characters by step."""

    def __init__(self, settings: RecogniserSettings) -> None:
        super().__init__()
        channels, hidden = settings.channels, settings.hidden_size
        self.settings = settings
        self.first = nn.Conv1d(
            settings.mel_count, channels, _KERNEL_SIZE, stride=STRIDE, padding=_KERNEL_SIZE // 2
        )
        self.second = nn.Conv1d(channels, channels, _KERNEL_SIZE, padding=_KERNEL_SIZE // 2)
        self.norm = nn.LayerNorm(channels)
        self.forwards = Gru(channels, hidden)
        self.backwards = Gru(channels, hidden)
        self.head = nn.Linear(2 * hidden, SYMBOL_COUNT)

    def forward(self, batch: MelBatch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities, ``(batch, steps, symbols)``, and the real steps, ``(batch,)``.

        A clip's result does not depend on what it is batched with.
        """
        values, mask = _centred(batch)
        values = functional.relu(self.first(values))
        steps = step_count(batch.frame_counts)
        mask = torch.arange(values.shape[2], device=values.device) < steps[:, None]
        values = functional.relu(self.second(values * mask[:, None]))
        values = self.norm(values.transpose(1, 2))
        turned = _turn(values, steps)
        ahead, _ = self.forwards(values)
        behind, _ = self.backwards(turned)
        read = self.head(torch.cat([ahead, _turn(behind, steps)], dim=2))
        return functional.log_softmax(read, dim=2), steps

    def loss(self, batch: MelBatch, texts: Sequence[Sequence[int]]) -> Tensor:
        """Return the CTC loss per character, the mean over clips, in nats.

        Texts are numbers of `models.listening.heard_letters`, none empty nor longer than its steps.
        """
        heard, steps = self(batch)
        lengths = torch.tensor([len(text) for text in texts])
        numbers = torch.tensor([number for text in texts for number in text])
        return functional.ctc_loss(
            heard.transpose(0, 1), numbers, steps.cpu(), lengths, blank=NOTHING
        )

    @torch.inference_mode()
    def read(self, mel: Tensor) -> str:
        """Return the likeliest character of each step, for finite log-mels ``(mel, frames)``."""
        check_mel(mel, self.settings.mel_count)
        counts = torch.tensor([mel.shape[1]])
        heard, _ = self(MelBatch(mel.float().unsqueeze(0), counts))
        return collapse(heard[0].argmax(1).tolist())

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw every weight and bias from U(-1/sqrt(n), 1/sqrt(n)), n inputs into one output."""
        for module in self.modules():
            match module:
                case nn.Conv1d() | nn.Linear():
                    bound = 1 / math.sqrt(module.weight[0].numel())
                case nn.GRU():
                    bound = 1 / math.sqrt(module.hidden_size)
                case _:
                    continue
            for parameter in module.parameters(recurse=False):
                parameter.uniform_(-bound, bound, generator=generator)


def check_mel(mel: Tensor, mel_count: int) -> None:
    """Raise ``ValueError`` unless a spectrogram is finite, ``(mel_count, frames >= 1)``."""
    if mel.ndim != 2 or mel.shape[0] != mel_count or not mel.shape[1]:
        raise ValueError(
            f"a spectrogram must have shape ({mel_count}, frames) with a frame at least, got "
            f"{tuple(mel.shape)}"
        )
    if not torch.isfinite(mel).all():
        bad = int((~torch.isfinite(mel)).sum())
        raise ValueError(f"a spectrogram must be finite, got {bad} values that are not")


def step_count(frame_counts: Tensor) -> Tensor:
    """Return the steps of so many frames: half of them, rounded up."""
    return (frame_counts + STRIDE - 1) // STRIDE


def stack_mels(mels: Sequence[Tensor]) -> MelBatch:
    """Put spectrograms of shape ``(mel, frames)`` into one batch, padded with zeros."""
    counts = [mel.shape[1] for mel in mels]
    longest = max(counts)
    padded = [functional.pad(mel.float(), (0, longest - mel.shape[1])) for mel in mels]
    return MelBatch(torch.stack(padded), torch.tensor(counts))


def _centred(batch: MelBatch) -> tuple[Tensor, Tensor]:
    """Return log-mels less each clip's mean of the channel, zero at padding, and the mask.

    A voice's loudness and a vocoder's colour are such means: what is said is in the rest.
    """
    mels, counts = batch
    mask = (torch.arange(mels.shape[2], device=mels.device) < counts[:, None])[:, None]
    real = mels.masked_fill(~mask, 0)
    means = real.sum(2, keepdim=True) / counts[:, None, None]
    return ((real - means) / _SPREAD).masked_fill(~mask, 0), mask


def _turn(values: Tensor, steps: Tensor) -> Tensor:
    """Reverse each sequence of ``(batch, steps, width)`` within its real steps."""
    places = torch.arange(values.shape[1], device=values.device).expand(len(values), -1)
    turned = torch.where(places < steps[:, None], steps[:, None] - 1 - places, places)
    return values.gather(1, turned.unsqueeze(2).expand_as(values))
