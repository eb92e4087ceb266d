r"""Noise on integers, drawn exactly from the discrete Gaussian: P(n) \propto e^(-n^2 / 2 std^2).

A standard deviation is a float64 and means that rational number exactly. Randomness is AES-256 in
counter mode under a key; given uniform bits, the draws have the distribution above and no other.

**The draw.** The integers 0 <= n < T are cut into K strips of w integers, w a power of two: T =
K w >= 9 std and w <= max(1, std / 14). Integers p_0, ..., p_K add up to 2^16. A candidate takes
strip k with chance p_k / 2^16, and an offset in the strip and a sign uniformly: n = k w + offset.
It is accepted with chance a(n) = A e^(-n^2 / 2 std^2) / p_k. A is an integer, and p_k >= A
e^(-(k w)^2 / 2 std^2), so a(n) <= 1. Strip K stands for the tail. Zero with a minus is rejected.

*Exact.* A candidate is n, accepted, with probability p_k / 2^16 * 1 / 2w * a(n) = A / (2^17 w) *
e^(-n^2 / 2 std^2): the factor before is the same for all n, whatever the p_k are. The tail takes
j = 0, 1, ... with chance 2^-(j+1), n = T + 16 w j + an offset below 16 w, and accepts with a(n) =
16 A 2^(j+1) e^(-n^2 / 2 std^2) / p_K, which gives the same product. There a(n) <= 1, as p_K >= 32 A
e^(-T^2 / 2 std^2) and each j more costs e^(-16 w T / std^2) < e^-5, more than the 2 it gains.

*Decided exactly.* a(n) is computed in float64 as r_k e^-y, y = offset (2 k w + offset) / 2 std^2,
and the uniform is known to 53 bits. y <= 9/14 + 1/392 < 0.646 (0 if w = 1), so Taylor's series of
degree 12 is off by less than 0.646^13 / 13! < 2^-40; additions and multiplications round to nearest
(IEEE 754), fewer than 40 of them at values below 2, and add less than 2^-46; r_k, the float64 next
to A e^(-(k w)^2 / 2 std^2) / p_k, and the roundings of y add less than 2^-49; the uniform's missing
bits 2^-53. No function of a mathematical library is trusted. So a difference from the uniform above
2^-37 has the right sign; any other, a chance of 2^-36 a candidate, and every candidate of the tail
is decided by ``exact_coin``.

Not covered: the time a draw takes depends on its noise, though on no value that it is added to.

References:
    [Canonne] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy",
        NeurIPS 2020, arXiv:2004.00010: the distribution and its guarantee.
    [Karney] Karney, "Sampling exactly from the normal distribution", 2016, arXiv:1303.6257:
        uniform offsets in strips.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privacy.masking.exact_coin import WORD, exponential_bounds, falls_below
from privacy.masking.keystream import counter_mode

KEY_BYTES = 32
SMALLEST_STD = 0.25
LARGEST_STD = 2.0**40

# Candidates drawn at a time: each array of theirs is 64 KiB.
_BLOCK = 1 << 13
_TABLE_BITS = 16
_TABLE = 1 << _TABLE_BITS
_STRIPS_A_STD = 14
_TAIL_STDS = 9
_TAIL_WIDTH_BITS = 4
_UNDECIDED = 2.0**-37
_TAYLOR = tuple(1 / math.factorial(degree) for degree in range(13))
# Bits of the heights of strips, from which the p_k are rounded up.
_HEIGHT_BITS = 96
# The words of exact decisions come from the upper half of the counters.
_EXACT_COUNTER = 1 << 127


def add_discrete_gaussian(values: NDArray[np.int64], std: float, key: bytes) -> None:
    """Add an independent draw of the discrete Gaussian to each element, in place.

    Args:
        values: Shape ``(elements,)``.
        std: In steps, from ``SMALLEST_STD`` to ``LARGEST_STD``; the number that the float is.
            The variance of the draws is at most its square, and as good as that from 1 on.
        key: ``KEY_BYTES`` secret bytes, fresh for every vector of noise; the same key draws the
            same noise.

    Raises:
        ValueError: If an argument is none of these.
    """
    if not SMALLEST_STD <= std <= LARGEST_STD:
        raise ValueError(f"std must be in {SMALLEST_STD:g}..{LARGEST_STD:g} steps, got {std}")
    if len(key) != KEY_BYTES:
        raise ValueError(f"a noise key must have {KEY_BYTES} bytes, got {len(key)}")
    draws = _Draws(_strips(std), key)
    filled = 0
    while filled < len(values):
        noise = draws.accepted()[: len(values) - filled]
        values[filled : filled + len(noise)] += noise
        filled += len(noise)


@dataclass(frozen=True, slots=True, eq=False)
class _Strips:
    """The candidates of one standard deviation, as the module's docstring names them.

    Attributes:
        variance: std^2.
        width_bits: w = 2^width_bits.
        scale: A.
        places: p_0, ..., p_K.
        strip_of: Strip of each of the 2^16 places, uint8.
        heights: r_0, ..., r_(K-1), and NaN for the tail, which no comparison decides.
    """

    variance: Fraction
    width_bits: int
    scale: int
    places: tuple[int, ...]
    strip_of: NDArray[np.uint8]
    heights: NDArray[np.float64]

    @property
    def tail(self) -> int:
        """Return K."""
        return len(self.places) - 1

    def exponent(self, magnitude: int) -> Fraction:
        """Return n^2 / 2 std^2."""
        return magnitude * magnitude / (2 * self.variance)


@lru_cache(maxsize=8)
def _strips(std: float) -> _Strips:
    """Return the strips for a standard deviation, with the largest A that the places allow."""
    exact = Fraction(std)
    width_bits = max(0, int(exact / _STRIPS_A_STD).bit_length() - 1)
    count = math.ceil(_TAIL_STDS * exact / (1 << width_bits))
    exponents = [Fraction(k << width_bits) ** 2 / (2 * exact**2) for k in range(count + 1)]
    bounds = [exponential_bounds(exponent, _HEIGHT_BITS) for exponent in exponents]
    needed = [largest for _, largest in bounds]
    needed[-1] <<= _TAIL_WIDTH_BITS + 1

    def places(scale: int) -> list[int]:
        return [-(-scale * height >> _HEIGHT_BITS) for height in needed]

    # By bisection, the largest A whose strips fit in the table; strip 0 takes what is left.
    scale, beyond = 0, _TABLE
    while beyond - scale > 1:
        middle = (scale + beyond) // 2
        scale, beyond = (middle, beyond) if sum(places(middle)) <= _TABLE else (scale, middle)
    taken = places(scale)
    taken[0] += _TABLE - sum(taken)
    heights = [
        float(Fraction(scale * least, place << _HEIGHT_BITS))
        for place, (least, _) in zip(taken, bounds, strict=True)
    ]
    heights[-1] = math.nan
    strip_of = np.repeat(np.arange(len(taken), dtype=np.uint8), taken)
    return _Strips(exact**2, width_bits, scale, tuple(taken), strip_of, np.array(heights))


class _Draws:
    """A stream of accepted candidates, with memory that each block uses again."""

    def __init__(self, strips: _Strips, key: bytes) -> None:
        self._strips = strips
        self._stream = counter_mode(key, 0)
        self._exact = counter_mode(key, _EXACT_COUNTER)
        self._zeros = bytes(2 * 8 * _BLOCK)
        # The cipher asks for room for one block more than it fills.
        self._memory = bytearray(2 * 8 * _BLOCK + 16)
        random = np.frombuffer(self._memory, dtype="<i8", count=2 * _BLOCK)
        self._choices, self._uniforms = random[:_BLOCK], random[_BLOCK:].view("<u8")
        self._integers = np.empty((3, _BLOCK), dtype=np.int64)
        self._reals = np.empty((3, _BLOCK), dtype=np.float64)

    def accepted(self) -> NDArray[np.int64]:
        """Return the noise of the next block's accepted candidates."""
        self._stream.update_into(self._zeros, self._memory)
        strip, magnitude = self._place()
        difference = self._lead(strip, magnitude)
        accepted = difference > _UNDECIDED
        # Written so that the tail's NaN is neither accepted nor rejected here.
        undecided = np.flatnonzero(~(accepted | (difference < -_UNDECIDED)))
        for index in undecided:
            magnitude[index], accepted[index] = self._decide(
                int(strip[index]), int(magnitude[index]), int(self._uniforms[index])
            )
        # The top bit is the sign, 0 or -1; zero with a minus is the only sum below zero.
        sign = np.right_shift(self._choices, 63, out=self._integers[1])
        accepted &= np.add(magnitude, sign, out=self._integers[2]) >= 0
        magnitude ^= sign
        magnitude -= sign
        return magnitude[accepted]

    def _place(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return each candidate's strip and magnitude n, and leave its offset and k w behind."""
        strips, (magnitude, offset, base) = self._strips, self._integers
        np.bitwise_and(self._choices, _TABLE - 1, out=base)
        strip = strips.strip_of[base]
        base[:] = strip
        np.left_shift(base, strips.width_bits, out=base)
        np.right_shift(self._choices, _TABLE_BITS, out=offset)
        np.bitwise_and(offset, (1 << strips.width_bits) - 1, out=offset)
        return strip, np.add(base, offset, out=magnitude)

    def _lead(self, strip: NDArray[np.uint8], magnitude: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return by how much the chance of each candidate exceeds its uniform, to 2^-37."""
        minus_y, chance, uniform = self._reals
        _, offset, base = self._integers
        np.add(magnitude, base, out=base)
        np.multiply(base, offset, out=minus_y, dtype=np.float64)
        minus_y *= float(-1 / (2 * self._strips.variance))
        # Taylor's series by Horner's rule, from the highest degree down.
        np.multiply(minus_y, _TAYLOR[-1], out=chance)
        for coefficient in _TAYLOR[-2:0:-1]:
            chance += coefficient
            chance *= minus_y
        chance += 1
        chance *= self._strips.heights[strip]
        np.right_shift(self._uniforms, 11, out=self._integers[1].view(np.uint64))
        np.multiply(self._integers[1], 2.0**-53, out=uniform)
        chance -= uniform
        return chance

    def _decide(self, strip: int, magnitude: int, uniform: int) -> tuple[int, bool]:
        """Return an undecided candidate's magnitude, drawn here for the tail, and its fate."""
        strips = self._strips
        factor = Fraction(strips.scale, strips.places[strip])
        if strip == strips.tail:
            magnitude, halvings = draw_tail(strip, strips.width_bits, self._next_word)
            factor *= 1 << halvings + _TAIL_WIDTH_BITS
        exponent = strips.exponent(magnitude)
        return magnitude, falls_below(uniform, factor, exponent, self._next_word)

    def _next_word(self) -> int:
        return int.from_bytes(self._exact.update(bytes(WORD // 8)), "little")


def draw_tail(tail: int, width_bits: int, next_word: Callable[[], int]) -> tuple[int, int]:
    """Return a candidate n of the tail and j + 1, where its chance is 2^-(j+1) / 16 w."""
    halvings = 1
    while next_word() & 1:
        halvings += 1
    wide = width_bits + _TAIL_WIDTH_BITS
    offset = next_word() & (1 << wide) - 1
    return (tail << width_bits) + ((halvings - 1) << wide) + offset, halvings
