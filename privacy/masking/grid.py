r"""The grid of a masked sum: its step, the width of its integers and each device's share of noise.

A message x of norm at most S is a real vector; its elements become integers, x_i / g_i rounded at
random to a neighbour so that the mean stays. The last ``wide_count`` elements (the weights) may
each be as large as S and have a coarser step than the others, which a device limits to
``element_limit``: that moves values towards zero, so it lowers norms and distances alike.

**What rounding costs** ([Kairouz], Section 4, here with steps that differ). With X the rounded
vector, E X_i^2 <= x_i^2 + g_i^2 / 4, and X_i^2 takes two values that lie 2 g_i m_i apart, m_i the
middle of the cell, |m_i| <= |x_i| + g_i / 2. By Hoeffding's inequality, with G^2 = sum g_i^2 and
g the largest step,

    |X|^2 <= S^2 + G^2 / 4 + sqrt(2 ln(1 / beta)) g (S + G / 2)        but for a chance beta.

The device rounds again until this holds (*conditional* rounding), so it holds always, whatever the
message: privacy needs no beta. Its root is ``rounded_norm``, and a neighbour's messages, of which
one is left out or replaced, are as far apart as one rounded message is long or two are. ``beta`` =
2^-30 keeps the mean within a billionth and makes a second rounding an event nobody sees.

**Overflow** is a wrong sum and no breach: a sum modulo 2^bits is post-processing. Each of M devices
adds at most element_limit / g + 1 and a discrete Gaussian, which is sub-Gaussian with its variance
parameter ([Canonne], Corollary 17), so the sum of d elements stays below 2^(bits - 1) but for a
chance of 2^-50, which is below delta / 100 for every delta above 10^-13.

References:
    [Kairouz] Kairouz, Liu, Steinke, ICML 2021, arXiv:2102.06387.
    [Canonne] Canonne, Kamath, Steinke, NeurIPS 2020, arXiv:2004.00010.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from privacy.accounting.discrete_noise import check_share_std, share_variance
from privacy.masking.discrete_gaussian import add_discrete_gaussian
from privacy.masking.keystream import counter_mode
from privacy.masking.packing import PACKED_BITS

# The largest share of the sensitivity that rounding may add where a narrower width is chosen.
MOST_COST = 0.005
# An element's limit in S / sqrt(elements).
LIMIT_RATIO = 64.0

_AGAIN = 2.0**-30
# A message within its norm needs a second rounding once in 2^30 times.
_ATTEMPTS = 4
# Float64 sums of squares are off by less than this part of themselves.
_SLACK = 2.0**-30
# Elements rounded at a time; each array of theirs is 128 KiB.
_BLOCK = 1 << 14
_OVERFLOW = 2.0**-50


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The messages that one sum adds, before they are rounded.

    Attributes:
        element_count: Elements of a message, check elements apart.
        wide_count: How many of these, the last ones, may be as large as the norm.
        norm: Largest L2 norm S of a message, in real units.
        sensitivity: Largest L2 distance of neighbouring sums in real units: S, or 2 S where a
            neighbour's message is replaced.
        contributors: Largest number M of messages in one sum.
        noise_multiplier: z of the sum of the honest shares; 0 for no noise.
        honest: Fewest devices in a sum that add their share.
    """

    element_count: int
    wide_count: int = 0
    norm: float
    sensitivity: float
    contributors: int
    noise_multiplier: float
    honest: int

    def __post_init__(self) -> None:
        """Refuse what describes no sum."""
        if not 0 <= self.wide_count <= self.element_count or self.element_count < 1:
            raise ValueError(
                f"element_count must be >= 1 and wide_count in 0..element_count, got "
                f"{self.element_count} and {self.wide_count}"
            )
        if not 0 < self.norm <= self.sensitivity <= 2 * self.norm < math.inf:
            raise ValueError(
                f"norm must be > 0 and finite, and sensitivity from norm to twice it, got "
                f"{self.norm} and {self.sensitivity}"
            )
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier must be >= 0, got {self.noise_multiplier}")
        if not 1 <= self.honest <= self.contributors:
            raise ValueError(
                f"honest must be in 1..contributors, got {self.honest} of {self.contributors}"
            )

    @property
    def element_limit(self) -> float:
        """Return the largest magnitude of an element that is not wide, in real units."""
        return self.norm * min(1.0, LIMIT_RATIO / math.sqrt(self.element_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Integers that stand for real vectors, and the noise that each device adds to its own.

    Attributes:
        bits: Width of an element; sums are taken modulo 2^bits.
        element_count: Elements of a message, check elements apart.
        wide_count: How many of these, the last ones, have ``wide_step``.
        step: Real units an integer stands for, a power of two.
        wide_step: The same for the wide elements; at least ``step``.
        share_std: Standard deviation of a device's noise on an element, in steps; 0 for none.
        wide_share_std: The same in wide steps.
        element_limit: Largest magnitude of an element that is not wide, in real units.
        rounded_norm: Largest L2 norm of a rounded message, in real units.
        sensitivity: Largest L2 distance of neighbouring sums of rounded messages.
    """

    bits: int
    element_count: int
    wide_count: int
    step: float
    wide_step: float
    share_std: float = field(default=0.0)
    wide_share_std: float = field(default=0.0)
    element_limit: float
    rounded_norm: float
    sensitivity: float

    @property
    def parts(self) -> tuple[tuple[slice, float, float], ...]:
        """Return the ordinary and the wide elements with their step and share of noise."""
        first_wide = self.element_count - self.wide_count
        return (
            (slice(0, first_wide), self.step, self.share_std),
            (slice(first_wide, self.element_count), self.wide_step, self.wide_share_std),
        )


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
            check_share_std(min(grid.share_std, grid.wide_share_std))
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
    """Return the grid with the smallest steps at which the sum fits in ``bits`` bits.

    Raises:
        ValueError: If ``bits`` is not in ``PACKED_BITS``, or no step below the norm fits.
    """
    if bits not in PACKED_BITS:
        raise ValueError(f"bits must be one of {PACKED_BITS}, got {bits}")
    # The first step at which the signal alone fits; noise may ask for a coarser one.
    room = 2.0 ** (bits - 1)
    step = _power_of_two(messages.contributors * messages.element_limit / room)
    wide_step = max(step, _power_of_two(messages.contributors * messages.norm / room))
    while step <= messages.norm:
        grid = _grid(messages, bits, step, wide_step if messages.wide_count else step)
        fits = [
            _largest_sum(messages, limit, part_step, share_std) < room
            for limit, (_, part_step, share_std) in zip(
                (messages.element_limit, messages.norm), grid.parts, strict=True
            )
        ]
        if fits[0] and (fits[1] or not messages.wide_count):
            return grid
        step = step if fits[0] else 2 * step
        wide_step = max(step, wide_step if fits[1] else 2 * wide_step)
    raise ValueError(
        f"a sum of {messages.contributors} messages with noise_multiplier "
        f"{messages.noise_multiplier:g} does not fit in {bits} bits; lower one of them or take "
        "more bits"
    )


def to_grid(values: NDArray[np.float64], grid: Grid, key: bytes) -> NDArray[np.int64]:
    """Limit a message's elements and round them at random to the grid.

    Args:
        values: Real units, finite, float32 or float64, shape ``(element_count,)``.
        grid: Of this message's sum.
        key: 32 secret bytes, fresh for this message.

    Returns:
        Integers in steps, whose norm in real units is at most ``grid.rounded_norm``.

    Raises:
        ValueError: If the shape is another or the norm too large: the caller clips.
    """
    if values.shape != (grid.element_count,):
        raise ValueError(f"a message must have shape ({grid.element_count},), got {values.shape}")
    rounded = np.empty(grid.element_count, dtype=np.int64)
    for attempt in range(_ATTEMPTS):
        squares = math.fsum(
            _round_part(
                values[elements],
                rounded[elements],
                step=step,
                limit=limit,
                stream=counter_mode(key, 2 * attempt + part << 64),
            )
            for part, ((elements, step, _), limit) in enumerate(
                zip(grid.parts, (grid.element_limit, math.inf), strict=True)
            )
        )
        if not math.isfinite(squares):
            raise ValueError("a message must be finite")
        if squares <= grid.rounded_norm**2:
            return rounded
    raise ValueError(
        f"a message's norm must be at most what its grid was chosen for, which rounds to "
        f"{grid.rounded_norm:g}, got {math.sqrt(squares):g} {_ATTEMPTS} times; clip it first"
    )


def from_grid(total: NDArray[np.uint32], grid: Grid) -> NDArray[np.float64]:
    """Return the sum modulo 2^bits, taken as signed, in real units, shape ``(element_count,)``."""
    if total.shape != (grid.element_count,):
        raise ValueError(f"a sum must have shape ({grid.element_count},), got {total.shape}")
    spare = 32 - grid.bits
    # The sign bit moves to the top, and comes back with copies of itself.
    signed = (total << np.uint32(spare)).view(np.int32) >> spare
    values = signed.astype(np.float64)
    for elements, step, _ in grid.parts:
        values[elements] *= step
    return values


def add_share(values: NDArray[np.int64], grid: Grid, key: bytes) -> None:
    """Add a device's share of discrete Gaussian noise to its rounded message, in place.

    ``values`` has shape ``(element_count,)``; the key is 32 secret bytes, fresh for this message.
    """
    if values.shape != (grid.element_count,):
        raise ValueError(f"a message must have shape ({grid.element_count},), got {values.shape}")
    for part, (elements, _, share_std) in enumerate(grid.parts):
        if share_std:
            add_discrete_gaussian(values[elements], share_std, key, part=part)


def _round_part(
    values: NDArray[np.float64],
    rounded: NDArray[np.int64],
    *,
    step: float,
    limit: float,
    stream: CipherContext,
) -> float:
    """Round one part at random and return its sum of squares in real units."""
    squares = 0.0
    zeros, memory = bytes(4 * _BLOCK), bytearray(4 * _BLOCK + 16)
    random = np.frombuffer(memory, dtype="<u4", count=_BLOCK)
    for start in range(0, len(values), _BLOCK):
        exact = values[start : start + _BLOCK].astype(np.float64)
        np.clip(exact, -limit, limit, out=exact)
        exact *= 1 / step
        stream.update_into(zeros, memory)
        lower = np.floor(exact)
        # The chance of the upper neighbour is the distance to the lower, to 2^-32.
        exact -= lower
        lower += random[: len(exact)] * 2.0**-32 < exact
        # Not a dot product: BLAS would start threads for it.
        part_squares = float(np.square(lower, out=exact).sum())
        if not math.isfinite(part_squares):
            return math.inf
        squares += part_squares * step * step
        rounded[start : start + len(lower)] = lower
    return squares


def _grid(messages: Messages, bits: int, step: float, wide_step: float) -> Grid:
    """Return the grid with these steps, whether or not the sum fits in its width."""
    wide = messages.wide_count
    steps_squared = (messages.element_count - wide) * step**2 + wide * wide_step**2
    reach = max(step, wide_step) * (messages.norm + math.sqrt(steps_squared) / 2)
    unlikely = math.sqrt(2 * math.log(1 / _AGAIN)) * reach
    square = messages.norm**2 + steps_squared / 4 + unlikely
    rounded_norm = math.sqrt(square) * (1 + _SLACK)
    sensitivity = messages.sensitivity * (rounded_norm / messages.norm)

    def share_std(part_step: float) -> float:
        noise_std = messages.noise_multiplier * sensitivity / part_step
        return math.sqrt(share_variance(noise_std, messages.honest)) if noise_std else 0.0

    return Grid(
        bits=bits,
        element_count=messages.element_count,
        wide_count=wide,
        step=step,
        wide_step=wide_step,
        share_std=share_std(step),
        wide_share_std=share_std(wide_step),
        element_limit=messages.element_limit,
        rounded_norm=rounded_norm,
        sensitivity=sensitivity,
    )


def _largest_sum(messages: Messages, limit: float, step: float, share_std: float) -> float:
    """Return what no element of a sum exceeds, in steps, but for a chance of 2^-50 for all."""
    deviations = math.sqrt(2 * math.log(2 * messages.element_count / _OVERFLOW))
    noise = deviations * math.sqrt(messages.contributors) * share_std
    return messages.contributors * (limit / step + 1) + noise


def _power_of_two(least: float) -> float:
    """Return the smallest power of two that is at least ``least``."""
    mantissa, exponent = math.frexp(least)
    return math.ldexp(1.0, exponent - (mantissa == 0.5))
