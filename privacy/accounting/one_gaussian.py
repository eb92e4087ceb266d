"""The exact cost of one release by the Gaussian mechanism, with no library.

A device asks it of the noise that it adds itself.

References:
    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018,
        arXiv:1805.06530, theorem 8.
"""

import math


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Return the least δ at which noise of z times the sensitivity is (ε, δ)-private.

    δ = Φ(1/2z - εz) - e^ε Φ(-1/2z - εz), with both arguments > 0.
    """
    half, shift = 0.5 / noise_multiplier, epsilon * noise_multiplier
    # As logarithms: e^ε overflows where the factor behind it is 0.
    subtracted = math.exp(min(0.0, epsilon + _log_normal(-half - shift)))
    return max(0.0, math.exp(_log_normal(half - shift)) - subtracted)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the least ε, to 2^-40 of a bound on it, at which noise of z is (ε, δ)-private."""
    # Mironov, "Rényi differential privacy", CSF 2017, proposition 3, at the best order.
    least, largest = (
        0.0,
        0.5 / noise_multiplier**2 + math.sqrt(-2 * math.log(delta)) / noise_multiplier,
    )
    for _ in range(40):
        middle = (least + largest) / 2
        if gaussian_delta(noise_multiplier, middle) > delta:
            least = middle
        else:
            largest = middle
    return largest


def _log_normal(x: float) -> float:
    """Return ln Φ(x), Φ the normal distribution's cumulative function."""
    if x > -35.0:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))
    # Two terms of the asymptotic series: off by less than 3/x⁴, 2e-6.
    return -x * x / 2 - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log1p(-1.0 / (x * x))
