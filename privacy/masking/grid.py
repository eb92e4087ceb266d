r"""The grid of a masked sum: its step, the width of its integers and each device's share of noise.

A message x of norm at most S is rotated (``rotation``), and its elements become integers, x_i / g
rounded at random to a neighbour so that the mean stays. All elements have the same step g and the
same noise.

**What rounding costs** ([Kairouz]). With X the rounded vector of d elements, E X_i^2 <=
x_i^2 + g^2 / 4, and X_i^2 takes two values that lie 2 g m_i apart, m_i the middle of the cell,
|m_i| <= |x_i| + g / 2. By Hoeffding's inequality,

    |X|^2 <= S^2 + g^2 d / 4 + sqrt(2 ln(1 / beta)) g (S + g sqrt(d) / 2)    but for a chance beta.

The device rounds again until this holds (*conditional* rounding), so it holds always, whatever the
message: privacy needs no beta. Its root is ``rounded_norm``, and a neighbour's messages, one of
which is left out or replaced, are as far apart as one rounded message is long or two are. beta =
2^-30 moves a mean by less than 2^-29 steps and makes a second rounding an event nobody sees.

**Overflow** gives a wrong sum and is no breach: a sum modulo 2^bits is post-processing. The sum of
M rotated messages has no element above t M S / sqrt(B), but for a chance 2 d e^(-t^2 / 2); rounding
adds at most M steps; and the sum of M discrete Gaussians, sub-Gaussian with their variance
parameters ([Canonne]), stays below t of its standard deviations but for as much again. t
makes each chance 2^-51, together less than delta / 100 for every delta above 10^-13.

References:
    [Kairouz] Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated
        learning with secure aggregation", ICML 2021, arXiv:2102.06387.
    [Canonne] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy",
        NeurIPS 2020, arXiv:2004.00010.
"""

import math
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from privacy.accounting.discrete_noise import check_share_std, share_variance
from privacy.masking.discrete_gaussian import add_discrete_gaussian
from privacy.masking.keystream import counter_mode
from privacy.masking.packing import PACKED_BITS
from privacy.masking.rotation import rotate, rotate_back, rotation_block

# The largest share of the sensitivity that rounding may add where a narrower width is chosen.
MOST_COST = 0.005

_AGAIN = 2.0**-30
# A message within its norm needs a second rounding once in 2^30 times.
_ATTEMPTS = 4
# Float64 sums of squares are off by less than half this part of themselves.
_SLACK = 2.0**-30
# Above it the integers of a block would not be exact; no grid has a message so large.
_LARGEST_SQUARES = 2.0**100
# A rotation lowers the largest element by at most 2^8: a first step that is fine enough.
_LARGEST_SPREAD = 8
# Elements rounded at a time; each array of theirs is 128 KiB.
_BLOCK = 1 << 14
_OVERFLOW = 2.0**-51


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The messages that one sum adds, before they are rounded.

    Attributes:
        element_count: Elements d of a message, check elements apart.
        norm: Largest L2 norm S of a message, in real units.
        sensitivity: Largest L2 distance of neighbouring sums in real units: S, or 2 S where a
            neighbour's message is replaced.
        contributors: Largest number M of messages in one sum.
        noise_multiplier: z of the sum of the honest shares; 0 for no noise.
        honest: Fewest devices in a sum that add their share.
    """

    element_count: int
    norm: float
    sensitivity: float
    contributors: int
    noise_multiplier: float
    honest: int

    def __post_init__(self) -> None:
        """Refuse what describes no sum."""
        if self.element_count < 1:
            raise ValueError(f"element_count must be >= 1, got {self.element_count}")
        if not 0 < self.norm < math.inf:
            raise ValueError(f"norm must be > 0 and finite, got {self.norm}")
        # What rounding adds to a distance is known for one message and for two, not between.
        if not any(math.isclose(self.sensitivity, n * self.norm, rel_tol=1e-9) for n in (1, 2)):
            raise ValueError(
                f"sensitivity must be the norm {self.norm} or twice it, got {self.sensitivity}"
            )
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(
                f"noise_multiplier must be >= 0 and finite, got {self.noise_multiplier}"
            )
        if not 1 <= self.honest <= self.contributors:
            raise ValueError(
                f"honest must be in 1..contributors, got {self.honest} of {self.contributors}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Integers that stand for real vectors, and the noise that each device adds to its own.

    Attributes:
        bits: Width of an element; sums are taken modulo 2^bits.
        element_count: Elements of a message, check elements apart.
        step: Real units that an integer stands for.
        share_std: Standard deviation of a device's noise on an element, in steps; 0 for none.
        rounded_norm: Largest L2 norm of a rounded message, in real units.
        sensitivity: Largest L2 distance of neighbouring sums of rounded messages, in real units.
    """

    bits: int
    element_count: int
    step: float
    share_std: float
    rounded_norm: float
    sensitivity: float


def choose_grid(messages: Messages) -> Grid:
    """Return the finest grid of the narrowest width at which rounding costs little.

    Little is ``MOST_COST`` of the sensitivity, with shares of at least 5 steps.

    Raises:
        ValueError: If the messages have no noise, or no width holds their sum.
    """
    if messages.noise_multiplier == 0:
        raise ValueError("noise_multiplier must be > 0: a sum without noise hides nobody")
    for bits in PACKED_BITS:
        try:
            grid = finest_grid(messages, bits)
            check_share_std(grid.share_std)
        except ValueError:
            if bits == PACKED_BITS[-1]:
                raise
            continue
        if grid.rounded_norm <= messages.norm * (1 + MOST_COST):
            return grid
    raise ValueError(
        f"rounding must cost at most {MOST_COST:.1%} of the sensitivity, which a sum of "
        f"{messages.contributors} messages of {messages.element_count} elements does not allow "
        f"in {PACKED_BITS[-1]} bits; lower contributors or noise_multiplier"
    )


def finest_grid(messages: Messages, bits: int) -> Grid:
    """Return the grid with the smallest step at which the sum fits in ``bits`` bits.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS``, or only a step above the norm fits.
    """
    if bits not in PACKED_BITS:
        raise ValueError(f"bits must be one of {PACKED_BITS}, got {bits}")
    # Finer than any that fits; each pass takes the step at which the sum of the last would fit.
    step = messages.contributors * messages.norm / 2.0 ** (bits + _LARGEST_SPREAD)
    while step <= messages.norm:
        grid = _grid(messages, bits, step)
        too_large = _largest_sum(messages, grid) / (2.0 ** (bits - 1) - 1)
        if too_large <= 1:
            return grid
        step *= too_large * (1 + _SLACK)
    raise ValueError(
        f"a sum of {messages.contributors} messages with noise_multiplier "
        f"{messages.noise_multiplier:g} does not fit in {bits} bits; lower one of them or take "
        "more bits"
    )


def to_grid(values: NDArray[np.float64], grid: Grid, key: bytes) -> NDArray[np.int64]:
    """Rotate a message and round it at random to the grid.

    Args:
        values: Real units, finite, float32 or float64, shape ``(element_count,)``; unchanged.
        grid: Of this message's sum.
        key: 32 secret bytes, fresh for this message; the same key rounds the same way.

    Returns:
        Integers in steps, whose norm in real units is at most ``grid.rounded_norm``.

    Raises:
        ValueError: If the shape is another, or the norm too large: the caller clips.
    """
    if values.shape != (grid.element_count,):
        raise ValueError(f"a message must have shape ({grid.element_count},), got {values.shape}")
    # Values that are no numbers end in an infinite norm.
    with np.errstate(invalid="ignore", over="ignore"):
        for attempt in range(_ATTEMPTS):
            rotated = values.astype(np.float64)
            rotate(rotated)
            rotated /= grid.step
            squares = _round(rotated, counter_mode(key, attempt << 64))
            norm = grid.step * math.sqrt(squares) * (1 + _SLACK / 2)
            if norm <= grid.rounded_norm:
                # The integers lie where the values were.
                return rotated.view(np.int64)
    raise ValueError(
        f"a message's norm must be at most what its grid was chosen for, which rounds to "
        f"{grid.rounded_norm:g}, got {norm:g}; clip it first"
    )


def from_grid(total: NDArray[np.uint32], grid: Grid) -> NDArray[np.float64]:
    """Return a sum modulo 2^bits, taken as signed, in real units and rotated back.

    Both have shape ``(element_count,)``; ValueError is raised for another.
    """
    if total.shape != (grid.element_count,):
        raise ValueError(f"a sum must have shape ({grid.element_count},), got {total.shape}")
    spare = 32 - grid.bits
    # The sign bit moves to the top, and comes back with copies of itself.
    signed = (total << np.uint32(spare)).view(np.int32) >> np.int32(spare)
    values = signed.astype(np.float64)
    values *= grid.step
    rotate_back(values)
    return values


def add_share(values: NDArray[np.int64], grid: Grid, key: bytes) -> None:
    """Add a device's share of discrete Gaussian noise to its rounded message, in place.

    ``values`` has shape ``(element_count,)``; the key is 32 secret bytes, fresh for this message.
    """
    if values.shape != (grid.element_count,):
        raise ValueError(f"a message must have shape ({grid.element_count},), got {values.shape}")
    if grid.share_std:
        add_discrete_gaussian(values, grid.share_std, key)


def _round(values: NDArray[np.float64], stream: CipherContext) -> float:
    """Round values in steps at random, as int64 in their own memory.

    Returns the sum of squares of the integers, infinite if a value is no number or too large.
    """
    squares = 0.0
    zeros, memory = bytes(4 * _BLOCK), bytearray(4 * _BLOCK + 16)
    random = np.frombuffer(memory, dtype="<u4", count=_BLOCK)
    rounded = values.view(np.int64)
    for start in range(0, len(values), _BLOCK):
        exact = values[start : start + _BLOCK]
        stream.update_into(zeros, memory)
        lower = np.floor(exact)
        # The chance of the upper neighbour is the distance to the lower, to 2^-32.
        lower += random[: len(exact)] * 2.0**-32 < exact - lower
        # Not a dot product: BLAS would start threads for it.
        block_squares = float(np.square(lower).sum())
        if not block_squares < _LARGEST_SQUARES:
            return math.inf
        squares += block_squares
        rounded[start : start + len(lower)] = lower
    return squares


def _grid(messages: Messages, bits: int, step: float) -> Grid:
    """Return the grid with this step, whether or not the sum fits in its width."""
    spread = step * math.sqrt(messages.element_count)
    unlikely = math.sqrt(2 * math.log(1 / _AGAIN)) * step * (messages.norm + spread / 2)
    square = messages.norm**2 + spread**2 / 4 + unlikely
    rounded_norm = math.sqrt(square) * (1 + _SLACK)
    sensitivity = messages.sensitivity * (rounded_norm / messages.norm)
    noise_std = messages.noise_multiplier * sensitivity / step
    return Grid(
        bits=bits,
        element_count=messages.element_count,
        step=step,
        share_std=math.sqrt(share_variance(noise_std, messages.honest)) if noise_std else 0.0,
        rounded_norm=rounded_norm,
        sensitivity=sensitivity,
    )


def _largest_sum(messages: Messages, grid: Grid) -> float:
    """Return what no element of a sum exceeds, in steps, but for a chance of 2^-50 for all."""
    deviations = math.sqrt(2 * math.log(2 * messages.element_count / _OVERFLOW))
    spread = deviations / math.sqrt(rotation_block(messages.element_count))
    signal = messages.contributors * (messages.norm / grid.step * min(1.0, spread) + 1)
    return signal + deviations * math.sqrt(messages.contributors) * grid.share_std
