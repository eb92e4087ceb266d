"""The price of choosing the best of several private runs and publishing only that one.

Tuning on private data spends privacy: which setting won depends on the data. If the number of runs
is itself random, drawn from a truncated negative binomial distribution before any of them starts,
and nothing but the best run leaves, the price is a small multiple of one run's.

Where one run is (λ, ε)- and (λ', ε')-Rényi private, the best of K runs, K drawn with parameters η
and γ, is Rényi private at λ with

    ε + (1 + η) (1 - 1 / λ') ε' + (1 + η) log(1 / γ) / λ' + log E[K] / (λ - 1).

References:
    Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential Privacy", ICLR 2022,
        arXiv:2110.03620 (Theorem 2; η = 0 is the logarithmic distribution, η = 1 the geometric).
    Mironov et al., "Rényi Differential Privacy of the Sampled Gaussian Mechanism",
        arXiv:1908.10530 (one run's curve).
"""

import math
import random
from collections.abc import Sequence

from privacy.accounting.checked_values import (
    check_count,
    check_delta,
    check_noise_multiplier,
    check_sampling_rate,
)

ORDERS = (
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *range(11, 64),
    *(64, 80, 96, 128, 192, 256, 384, 512, 1024),
)
"""Rényi orders λ that are tried."""


def gamma_for(expected_runs: float) -> float:
    """Return γ of the geometric distribution (η = 1) with this mean, which must be above 1."""
    if not 1 < expected_runs < math.inf:
        raise ValueError(f"expected_runs must be > 1 and finite, got {expected_runs}")
    return 1 / expected_runs


def draw_run_count(expected_runs: float) -> int:
    """Draw how many runs to do, at least 1, with the operating system's randomness."""
    gamma = gamma_for(expected_runs)
    uniform = 1 - random.SystemRandom().random()  # In (0, 1].
    return max(1, math.ceil(math.log(uniform) / math.log1p(-gamma)))


def epsilon_of_best(
    *,
    noise_multiplier: float,
    sampling_rate: float,
    rounds: int,
    delta: float,
    expected_runs: float,
) -> float:
    """Return ε at δ of publishing the best of a geometric number of runs of T rounds each.

    Settings that vary must not change z or q; a q below 1 stands for secret coin flips.
    ``expected_runs``, above 1, is the mean number of runs.
    """
    from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent

    check_delta(delta)
    curve = compute_rdp(
        q=check_sampling_rate(sampling_rate),
        noise_multiplier=check_noise_multiplier(noise_multiplier),
        steps=check_count(rounds, "rounds"),
        orders=list(ORDERS),
    )
    best = selection_curve([float(rdp) for rdp in curve], expected_runs)
    epsilon, _ = get_privacy_spent(orders=list(ORDERS), rdp=best, delta=delta)
    return float(epsilon)


def selection_curve(one_run: Sequence[float], expected_runs: float) -> list[float]:
    """Return the Rényi bounds, at each of ``ORDERS``, of the best of a geometric number of runs.

    ``one_run`` has those of one run.
    """
    gamma, eta = gamma_for(expected_runs), 1.0
    # The second order may be chosen freely, and once for all: it does not depend on the first.
    choosing = min(
        (1 + eta) * ((1 - 1 / order) * rdp + math.log(1 / gamma) / order)
        for order, rdp in zip(ORDERS, one_run, strict=True)
    )
    return [
        rdp + choosing + math.log(expected_runs) / (order - 1)
        for order, rdp in zip(ORDERS, one_run, strict=True)
    ]
