"""The norms of client updates, and a bound on how far one of them can move the aggregate.

A norm is summed in float32 over short rows and in float64 over the rows: as fast as memory allows,
and off by less than 1e-6 of itself. Rows are never split, so the answer does not depend on the
number of threads. Where float32 squares overflow, the norm is summed again in float64. Updates
are contiguous float32 of shape ``(elements,)``.

References:
    [DP-FedAvg] McMahan et al., "Learning Differentially Private Recurrent Language Models",
        ICLR 2018, arXiv:1710.06963 (flat clipping, section 2).
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGEST_UPDATE_NORM = 1e18
"""Largest usable L2 norm: far above any training step, and its square is still a float32."""

_ROW = 2048  # Elements summed in float32: 8 KiB, so one row stays in the first-level cache.
_WIDE_BLOCK = 1 << 20  # Elements converted to float64 at a time: 8 MiB.
# The product of scaling is rounded to float32; this much less keeps its norm at or below the limit.
_ROUNDING_MARGIN = 2.0**-20


class UnusableUpdateError(ValueError):
    """Raised when an update must not reach the aggregate; the text says which rule it breaks."""


def l2_norm(vector: Tensor) -> float:
    """Return the L2 norm.

    Elements below 1e-19 in size may count as zero: an absolute error of at most 1e-19 times the
    square root of the number of elements. Raises UnusableUpdateError if an element is NaN or
    infinite.
    """
    return _norms(vector, (slice(None),))[0]


def tensor_norms(update: Tensor, tensors: Sequence[slice]) -> list[float]:
    """Return the L2 norm of each tensor of a flat update, checked as by `check_finite`."""
    norms = _norms(update, tensors)
    _check_size(math.hypot(*norms))
    return norms


def check_finite(update: Tensor) -> float:
    """Return the L2 norm of an update that can be aggregated without overflow.

    Raises UnusableUpdateError if it is not finite, or above ``LARGEST_UPDATE_NORM``.
    """
    norm = l2_norm(update)
    _check_size(norm)
    return norm


def clipping_factor(norm: float, clipping_norm: float | None) -> float:
    """Return what an update of this norm is multiplied by: 1 up to the limit, less above it."""
    if clipping_norm is None or norm <= clipping_norm:
        return 1.0
    return clipping_norm / norm * (1 - _ROUNDING_MARGIN)


def clip(update: Tensor, clipping_norm: float | None) -> tuple[Tensor, float]:
    """Scale an update down to the clipping norm (flat: all layers together; None leaves it).

    Returns the update with an L2 norm of at most ``clipping_norm``, in parameter units (the given
    tensor itself where nothing had to be done; a zero update is one such), and the norm before.

    Raises:
        UnusableUpdateError: As `check_finite`.
        ValueError: If ``clipping_norm`` is not above 0 and finite.
    """
    if clipping_norm is not None and not 0 < clipping_norm < math.inf:
        raise ValueError(f"clipping_norm must be > 0 and finite, got {clipping_norm}")
    norm = check_finite(update)
    factor = clipping_factor(norm, clipping_norm)
    return (update if factor == 1 else update * factor), norm


def _check_size(norm: float) -> None:
    if not norm <= LARGEST_UPDATE_NORM:
        raise UnusableUpdateError(
            f"client update must have an L2 norm <= {LARGEST_UPDATE_NORM:g}, got {norm:.3g}; "
            "lower the learning rate or clip gradients on the device"
        )


def _norms(vector: Tensor, parts: Sequence[slice]) -> list[float]:
    """Return the L2 norm of each part; raises as `l2_norm`."""
    values = vector.detach().cpu().numpy()
    # Overflow shows in the sum.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = [_sum_of_squares(values[part]) for part in parts]
    for index, part in enumerate(parts):
        if not math.isfinite(squares[index]):
            squares[index] = _wide_sum_of_squares(vector[part])
    return [math.sqrt(square) for square in squares]


def _sum_of_squares(values: NDArray[np.float32]) -> float:
    # Products of rows with themselves take half as long as torch's norms of them, and summing them
    # is pairwise.
    whole = len(values) // _ROW * _ROW
    rows, rest = values[:whole].reshape(-1, _ROW), values[whole:].astype(np.float64)
    square = float(np.vecdot(rest, rest))
    return square + float(np.vecdot(rows, rows).astype(np.float64).sum()) if whole else square


def _wide_sum_of_squares(vector: Tensor) -> float:
    square = math.fsum(
        float(block.double().square().sum()) for block in torch.split(vector, _WIDE_BLOCK)
    )
    if not math.isfinite(square):
        raise UnusableUpdateError("client update must be finite, it holds NaN or infinity")
    return square
