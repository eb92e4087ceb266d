"""Coins whose chance is a rational number times e^-x, decided by as many random bits as it takes.

A coin compares a uniform real u, of which the first 64 bits are drawn, with the chance. Both are
known as intervals of rationals; while these overlap, 64 more bits of u and as many more of the
chance are computed. So the answer has exactly the chance asked for: nothing is rounded, and a coin
that needs n words more has a probability of about 2^-64n.
"""

import decimal
from collections.abc import Callable
from fractions import Fraction

WORD = 64

# Bits of the exponential beyond those of the uniform, so that the interval is the narrower one.
_SPARE_BITS = 32


def falls_below(
    uniform: int, factor: Fraction, exponent: Fraction, next_word: Callable[[], int]
) -> bool:
    """Return whether a uniform real lies below ``factor * e^-exponent``, exactly.

    Args:
        uniform: The first 64 bits of the real, as an integer in [0, 2^64).
        factor: At least 0.
        exponent: At least 0.
        next_word: Returns the next 64 bits of the real when they are needed.
    """
    bits = WORD
    while True:
        scale = bits + _SPARE_BITS
        least, largest = exponential_bounds(exponent, scale)
        if Fraction(uniform + 1, 1 << bits) <= factor * Fraction(least, 1 << scale):
            return True
        if Fraction(uniform, 1 << bits) >= factor * Fraction(largest, 1 << scale):
            return False
        uniform, bits = uniform << WORD | next_word(), bits + WORD


def exponential_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Return integers (a, b) with a <= 2^bits * e^-exponent <= b, for an exponent >= 0.

    ``decimal`` rounds a quotient and an exponential correctly, to p digits: the quotient is off by
    at most x 10^(1-p) and the exponential by 10^(1-p) of itself, so that together they are off by
    less than 2 (x + 1) 10^(1-p) of the exponential.
    """
    digits = bits // 3 + len(str(int(exponent))) + 5
    with decimal.localcontext(decimal.Context(prec=digits, Emin=decimal.MIN_EMIN)):
        quotient = decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)
        value = Fraction((-quotient).exp())
    error = 2 * (exponent + 1) / Fraction(10) ** (digits - 1)
    least = (value * (1 - error) * (1 << bits)).__floor__()
    return least, (value * (1 + error) * (1 << bits)).__ceil__()
