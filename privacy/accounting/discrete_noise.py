r"""What noise on integers, added in shares, costs beside one Gaussian: a bound on log ratios.

**Discrete against continuous.** Let G = N(0, s^2) and let R(y) round y at random to the discrete
Gaussian of parameter r around y: P(R(y) = x) = e^(-(x - y)^2 / 2 r^2) / Z(y). For an integer q the
law of R(q + G) at x is the integral of e^(-(y - q)^2 / 2 s^2) e^(-(x - y)^2 / 2 r^2) / Z(y), where
the product integrates to a constant times e^(-(x - q)^2 / 2 (s^2 + r^2)), and by Poisson summation
Z(y) is sqrt(2 pi) r within a factor 1 +- h, h = 2 sum_k e^(-2 pi^2 r^2 k^2). So the discrete
Gaussian of variance s^2 + r^2 around q has, at every integer, the probability of R(q + G) within
e^(+-3h): it is as private as post-processing of the Gaussian mechanism with variance s^2. With r =
``SMOOTHING`` = 2 steps, h < 2^-112. A variance of (z S)^2 + r^2 square steps therefore counts as
multiplier z in every accountant.

**Shares.** The sum of n discrete Gaussians of variance s_1^2 has at every integer the probability
of one of variance n s_1^2 within e^(+-t), t = 10 sum_(k<n) e^(-2 pi^2 s_1^2 k / (k + 1))
([Kairouz]). If h devices of more are honest, the sum of their shares counts; what others add is
post-processing.

Independent elements multiply, so d elements are within e^(+-T), T = d (t + 3h), and a mechanism
that is (epsilon, delta)-DP with the one Gaussian is (epsilon + 2 T, e^T delta)-DP with the shares:
P(E) <= e^T P'(E) <= e^T (e^epsilon Q'(E) + delta) <= e^(epsilon + 2 T) Q(E) + e^T delta. A Rényi
divergence of order alpha grows by at most T (2 alpha - 1) / (alpha - 1). T is below 10^-24 for
2^30 elements, 10^6 devices and ``LEAST_SHARE_STD`` = 5 steps.

References:
    [Kairouz] Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for federated
        learning with secure aggregation", ICML 2021, arXiv:2102.06387: the bound tau.
    [Canonne] Canonne, Kamath, Steinke, NeurIPS 2020, arXiv:2004.00010.
"""

import math

LEAST_SHARE_STD = 5.0
SMOOTHING = 2.0
LOSS_BESIDE = 1e-9
"""What all sums of a run add to ε beside Gaussians: 2 T times 2^20 of them is below 10^-17."""

# Beyond it terms hardly fall, so that one stands for all of the rest.
_TERMS = 64


def share_variance(noise_std: float, honest: int) -> float:
    """Return the variance, in square steps, of the share that each device adds.

    Args:
        noise_std: z S in steps: what the honest shares must hide, counted as one Gaussian.
        honest: Fewest devices of whose shares the sum consists, at least 1.

    Raises:
        ValueError: If an argument is out of range.
    """
    if not 0 < noise_std < math.inf:
        raise ValueError(f"noise_std must be > 0 and finite, got {noise_std}")
    if honest < 1:
        raise ValueError(f"honest must be >= 1, got {honest}")
    return (noise_std**2 + SMOOTHING**2) / honest


def shares_log_ratio(share_std: float, shares: int, element_count: int) -> float:
    """Return T: how far a log ratio of probabilities is at most from one Gaussian's.

    Args:
        share_std: Standard deviation of a device's discrete Gaussian, in steps.
        shares: Honest devices whose shares are in the sum, at least 1.
        element_count: Elements with noise, at least 1.

    Raises:
        ValueError: If a count is below 1 or the share below ``LEAST_SHARE_STD`` steps.
    """
    check_share_std(share_std)
    for name, count in (("shares", shares), ("element_count", element_count)):
        if count < 1:
            raise ValueError(f"{name} must be >= 1, got {count}")
    smoothing = 3 * 2 * math.exp(-2 * (math.pi * SMOOTHING) ** 2) * (1 + 2.0**-32)
    return element_count * (tau(share_std, shares) + smoothing)


def tau(share_std: float, shares: int) -> float:
    """Return t, how far an element's log ratio is from that of one discrete Gaussian.

    The terms beyond k = ``_TERMS`` are bounded by as many times the largest of them. ``share_std``
    is in steps and at least 1/2, for which the bound is proved.
    """
    rate = 2 * (math.pi * share_std) ** 2
    nearest = [math.exp(-rate * k / (k + 1)) for k in range(1, min(shares, _TERMS))]
    rest = max(0, shares - _TERMS) * math.exp(-rate * _TERMS / (_TERMS + 1))
    return 10 * (math.fsum(nearest) + rest)


def check_share_std(share_std: float) -> None:
    """Raise ValueError if a share is too narrow for its grid to be told from a Gaussian."""
    if not LEAST_SHARE_STD <= share_std < math.inf:
        raise ValueError(
            f"a device's share of noise must have a standard deviation of at least "
            f"{LEAST_SHARE_STD:g} steps of the grid, got {share_std:g}; take a finer grid, more "
            "bits, a larger noise_multiplier or fewer contributors"
        )
