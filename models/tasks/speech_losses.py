"""The losses of a voice: spectrograms, the stop, and where in its text it is.

Every mean is over real frames, steps and characters, without padding.

References:
    [Li] Li et al., AAAI 2019, arXiv:1809.08895, section 3.6: the stop's weight of 5 to 8.
    [Align] Badlani et al., ICASSP 2022, arXiv:2108.10447: the sum over all alignments.
    [Guided] Tachibana et al., ICASSP 2018, arXiv:1710.08969, section 4: guided attention.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from models.settings.voice import TYPICAL_FRAMES

STOP_WEIGHT = 5.0
"""How much more the one step that is the last counts than another."""

DURATION_WEIGHT = 0.1
"""What durations count in the loss: at 1 their gradient outweighs that of the spectrogram."""

_LOG_BLANK = -1.0

GUIDE_WIDTH = 0.4
"""How far from the diagonal attention may be before it costs much, as a share of the whole."""


def real_places(counts: Tensor, longest: int) -> Tensor:
    """Return which places are real, bool, ``(batch, longest)``, from counts ``(batch,)``."""
    return torch.arange(longest, device=counts.device) < counts.unsqueeze(1)


def mel_loss(made: Tensor, right: Tensor, mask: Tensor) -> Tensor:
    """Return the mean absolute difference over all channels of real frames, shape ``()``.

    Frames have shape ``(batch, frames, mel)``; ``mask``, ``(batch, frames)``, is False at padding.
    """
    return (made - right).abs()[mask].mean()


def stop_loss(logits: Tensor, step_counts: Tensor) -> Tensor:
    """Return the mean cross-entropy of stop logits, ``(batch, steps)``, in nats, shape ``()``.

    The right answer is yes at each clip's last step, which weighs `STOP_WEIGHT`, and no before.
    """
    mask = real_places(step_counts, logits.shape[1])
    is_last = torch.zeros_like(logits)
    is_last.scatter_(1, step_counts.unsqueeze(1) - 1, 1.0)
    return functional.binary_cross_entropy_with_logits(
        logits[mask], is_last[mask], pos_weight=logits.new_tensor(STOP_WEIGHT)
    )


def forward_sum_loss(weights: Tensor, frame_counts: Tensor, text_counts: Tensor) -> Tensor:
    """Return minus the logarithm of all paths through a text together, a character, shape ``()``.

    Every path takes the characters in order, each for a frame or more ([Align], equations 4 to 6,
    as a CTC loss whose blank is of weight 1/e); clips that have none cost nothing.

    Args:
        weights: Logarithms of each character's weight, shape ``(batch, frames, text)``.
        frame_counts: Frames of each clip, int64, shape ``(batch,)``.
        text_counts: Characters of each clip, int64, shape ``(batch,)``.
    """
    with_blank = functional.pad(weights, (1, 0), value=_LOG_BLANK).log_softmax(2)
    places = torch.arange(1, weights.shape[2] + 1, device=weights.device).expand(len(weights), -1)
    return functional.ctc_loss(
        with_blank.transpose(0, 1), places, frame_counts, text_counts, zero_infinity=True
    )


def duration_loss(predicted: Tensor, found: Tensor, text_counts: Tensor) -> Tensor:
    """Return how far durations are apart, shape ``()``.

    Over real characters it is the mean of squares, or past a typical duration of absolute values:
    a median would be too short, since pauses are few and long. Beside it stands the mean over
    clips of how far the whole is too long or short, as a logarithm. Both have shape ``(batch,
    text)``, in frames.
    """
    mask = real_places(text_counts, predicted.shape[1])
    apart = functional.smooth_l1_loss(
        predicted[mask] / TYPICAL_FRAMES, found[mask] / TYPICAL_FRAMES
    )
    whole = predicted.sum(1).log() - found.sum(1).log()
    return apart + whole.abs().mean()


def guide(step_counts: Tensor, text_counts: Tensor, *, steps: int, text: int) -> Tensor:
    """Return the cost of attention at each place: 1 - exp(-(n/N - t/T)² / (2·0.4²)) ([Guided]).

    ``step_counts`` are T and ``text_counts`` are N of each clip, shape ``(batch,)``. The result has
    shape ``(batch, steps, text)``, zero at padding.
    """
    device = step_counts.device
    done = torch.arange(steps, device=device) / step_counts.unsqueeze(1)
    read = torch.arange(text, device=device) / text_counts.unsqueeze(1)
    apart = read[:, None, :] - done[:, :, None]
    cost = 1 - torch.exp(-apart.square() / (2 * GUIDE_WIDTH**2))
    return cost * real_cells(step_counts, text_counts, steps=steps, text=text)


def real_cells(step_counts: Tensor, text_counts: Tensor, *, steps: int, text: int) -> Tensor:
    """Return which cells of attention are of real steps and characters, bool, as `guide`."""
    rows, columns = real_places(step_counts, steps), real_places(text_counts, text)
    return rows[:, :, None] & columns[:, None, :]


def guided_loss(
    attentions: Sequence[Tensor], step_counts: Tensor, text_counts: Tensor, *, head_count: int
) -> Tensor:
    """Return the mean of `guide` times attention over real cells, blocks and heads, shape ``()``.

    ``attentions`` are those of the guided blocks, at least one, ``(batch, heads, steps, text)``
    each; their first ``head_count`` heads are guided.
    """
    steps, text = attentions[0].shape[2:]
    cost = guide(step_counts, text_counts, steps=steps, text=text)
    guided = torch.stack([attention[:, :head_count] for attention in attentions])
    cells = (step_counts * text_counts).sum() * guided.shape[0] * guided.shape[2]
    return (guided * cost.unsqueeze(1)).sum() / cells
