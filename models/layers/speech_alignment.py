"""Find when each character of a text is said, and draw a voice's attention there.

In training an aligner weighs how well each frame of a clip fits each character, and the likeliest
path that never goes back says how many frames each character lasts. A voice that speaks has no
clip: its durations are predicted, and where attention looks follows from either alike.

References:
    [Align] Badlani et al., "One TTS Alignment To Rule Them All", ICASSP 2022, arXiv:2108.10447: the
        aligner, its beta-binomial prior, the likeliest path as durations.
    [NAT] Shen et al., "Non-Attentive Tacotron", 2020, arXiv:2010.04301, section 2.2: a Gaussian
        over time around the middle of each character.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from models.layers.he_scaling import HeLinear
from models.layers.speech_convolutions import Activation, Convolution
from models.settings.voice import (
    MOST_LOG,
    PLACE_DEVIATION_FRAMES,
    TYPICAL_FRAMES,
    TransformerTtsSettings,
)

NOWHERE = -1e4
"""Logarithm of the weight of padding: finite, so that no gradient is NaN."""


class Aligner(nn.Module):
    """The weights of all characters at each frame of a clip, from convolutions of both."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        width = settings.aligner_size
        self.embedding = nn.Embedding(settings.text.symbol_count, width)
        self.text = _bare(width, width, "none")
        self.first = _bare(settings.mel.mel_count, width, "relu")
        self.second = _bare(width, width, "none")

    def forward(
        self, texts: Tensor, text_mask: Tensor, frames: Tensor, frame_mask: Tensor
    ) -> Tensor:
        """Return logarithms of weights, shape ``(batch, frames, text)``, with their prior.

        Args:
            texts: Characters, int64, shape ``(batch, text)``.
            text_mask: False at padding, bool, shape ``(batch, text)``.
            frames: Normalised log-mels, shape ``(batch, frames, mel)``.
            frame_mask: False at padding, bool, shape ``(batch, frames)``.
        """
        keys = self.text(self.embedding(texts) * text_mask.unsqueeze(2), text_mask)
        queries = self.first(frames * frame_mask.unsqueeze(2), frame_mask)
        queries = self.second(queries, frame_mask)
        scores = queries @ keys.transpose(1, 2) / math.sqrt(keys.shape[2])
        is_padding = ~text_mask.unsqueeze(1)
        weights: Tensor = scores.masked_fill(is_padding, NOWHERE).log_softmax(2)
        prior = beta_binomial(frame_mask.sum(1), text_mask.sum(1), *scores.shape[1:])
        return (weights + prior).masked_fill(is_padding, NOWHERE)


class DurationPredictor(nn.Module):
    """How many frames each character lasts, from what the encoder made of it."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        super().__init__()
        self.projection = HeLinear(settings.hidden_size, 1)

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Return frames, shape ``(batch, text)``, above zero but at padding.

        ``values`` have shape ``(batch, text, hidden)``; ``mask`` is False at padding, bool.
        """
        logs = self.projection(values).squeeze(2).clamp(-MOST_LOG, MOST_LOG)
        return TYPICAL_FRAMES * logs.exp() * mask  # type: ignore[no-any-return]  # returns Any


def beta_binomial(frame_counts: Tensor, text_counts: Tensor, frames: int, text: int) -> Tensor:
    """Return the prior's logarithms, ``(batch, frames, text)``; anything at padding.

    At frame t of T, from 1, character k of N, from 0, has the probability of k successes among
    N - 1 under a beta-binomial of parameters t and T - t + 1 ([Align], section 2.3, ω = 1).
    Counts have shape ``(batch,)``.
    """
    device = frame_counts.device
    tried = (text_counts - 1)[:, None, None].float()
    hits = torch.arange(text, device=device).float()[None, None, :].minimum(tried)
    alpha = torch.arange(1, frames + 1, device=device).float()[None, :, None]
    beta = (frame_counts[:, None, None] + 1 - alpha).clamp(min=1)
    ways = (tried + 1).lgamma() - (hits + 1).lgamma() - (tried - hits + 1).lgamma()
    return ways + _log_beta(hits + alpha, tried - hits + beta) - _log_beta(alpha, beta)


def likeliest_durations(weights: Tensor, frame_counts: Tensor, text_counts: Tensor) -> Tensor:
    """Return how many frames each character has on the likeliest path, ``(batch, text)``.

    The path begins at the first character and ends at the last one; from a frame to the next it
    stays or goes on by one. Clips with fewer frames than characters leave the first ones out.

    Args:
        weights: Logarithms, shape ``(batch, frames, text)``.
        frame_counts: Frames of each clip, int64, shape ``(batch,)``.
        text_counts: Characters of each clip, int64, shape ``(batch,)``.
    """
    # In numpy: hundreds of steps over small arrays, each five times as fast as in torch.
    scores, device = weights.detach().cpu().numpy(), weights.device
    last, ends = text_counts.cpu().numpy() - 1, frame_counts.cpu().numpy()
    clips, frames, text = scores.shape
    best = np.full((clips, text), -np.inf, dtype=scores.dtype)
    best[:, 0] = scores[:, 0, 0]
    came_on = np.zeros((frames, clips, text), dtype=bool)
    before = np.full_like(best, -np.inf)
    for frame in range(1, frames):
        before[:, 1:] = best[:, :-1]
        np.greater(before, best, out=came_on[frame])
        best = np.maximum(before, best) + scores[:, frame]
    rows, place, durations = np.arange(clips), last, np.zeros((clips, text), dtype=scores.dtype)
    for frame in reversed(range(frames)):
        is_real = frame < ends
        durations[rows, place] += is_real
        place = place - (came_on[frame, rows, place] & is_real)
    return torch.from_numpy(durations).to(device)


def middles(durations: Tensor) -> Tensor:
    """Return the middle of each character in frames from the start, ``(batch, text)`` as given."""
    return durations.cumsum(1) - durations / 2


def place_scores(middle: Tensor, first: int, steps: int, step_frames: int) -> Tensor:
    """Return what is added to scores of attention, shape ``(batch, 1, steps, text)``.

    It is the logarithm of a Gaussian over time, of deviation `PLACE_DEVIATION_FRAMES`, around the
    middle of each character, at the middle of each step. ``middle`` has shape ``(batch, text)``.
    """
    places = torch.arange(first, first + steps, device=middle.device)
    times = (places + 0.5) * step_frames
    apart = times[None, :, None] - middle[:, None, :]
    return (apart.square() / (-2 * PLACE_DEVIATION_FRAMES**2)).unsqueeze(1)


def _bare(source: int, channels: int, activation: Activation) -> Convolution:
    return Convolution(source, channels, norm="none", activation=activation, dropout=0.0)


def _log_beta(one: Tensor, other: Tensor) -> Tensor:
    return one.lgamma() + other.lgamma() - (one + other).lgamma()
