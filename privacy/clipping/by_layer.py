"""Clipping as the settings say: an update as one vector, or every tensor by itself.

A zero update fits every clip and stays zero. NaN and infinity are refused, never scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from privacy.clipping.clip import clip, clipping_factor, tensor_norms
from privacy.clipping.settings import ClippingSettings


@dataclass(frozen=True)
class ClippedUpdate:
    """One update after clipping: flat float32, shape ``(elements,)``.

    The given tensor itself where all fitted; ``norm`` is the L2 norm over all tensors before.
    """

    values: Tensor
    norm: float
    has_fitted: bool


def clip_update(
    update: Tensor, settings: ClippingSettings, tensors: Sequence[slice]
) -> ClippedUpdate:
    """Clip a contiguous float32 update, shape ``(elements,)``, which is not changed.

    ``tensors`` is where each tensor lies in it; together they cover it once.

    Raises:
        UnusableUpdateError: If an element is NaN or infinite, or the norm is above
            ``privacy.clipping.clip.LARGEST_UPDATE_NORM``.
        ValueError: If there is not one ratio a tensor.
    """
    clips = settings.tensor_clips(len(tensors))
    if clips is None:
        values, norm = clip(update, settings.clipping_norm)
        return ClippedUpdate(values, norm, values is update)
    norms = tensor_norms(update, tensors)
    factors = tensor_factors(norms, clips)
    values = scale_tensors(update, tensors, factors)
    return ClippedUpdate(values, math.hypot(*norms), values is update)


def tensor_factors(norms: Sequence[float], clips: Sequence[float]) -> tuple[float, ...]:
    """Return what each tensor is multiplied by: 1 up to its clip, less above it."""
    return tuple(
        clipping_factor(norm, tensor_clip) for norm, tensor_clip in zip(norms, clips, strict=True)
    )


def scale_tensors(update: Tensor, tensors: Sequence[slice], factors: Sequence[float]) -> Tensor:
    """Return a copy with each tensor scaled, or the update itself where every factor is 1."""
    if all(factor == 1 for factor in factors):
        return update
    scaled = update.clone()
    for where, factor in zip(tensors, factors, strict=True):
        scaled[where] *= factor
    return scaled
