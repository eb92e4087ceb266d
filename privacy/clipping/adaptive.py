"""A clipping norm that follows a quantile of the clients' update norms, privately.

Each client sends, sealed with its update, whether the update fitted within the round's norm C. The
server adds up b_k - γ over those that came, adds noise of standard deviation σ_b, and moves on:

    C <- C e^(-η (Σ (b_k - γ) + N(0, σ_b²)) / M).

An empty slot adds 0. [Andrew] subtracts 1/2 instead of γ, which is the same for the median; with
another γ, empty slots of a padded cohort would pull C away from the quantile. So one client moves
the sum by at most max(γ, 1 - γ), half a client for the median.

Privacy. The noised sum and the noised aggregate are one Gaussian mechanism: with multiplier z_Δ on
the aggregate and σ_b / max(γ, 1 - γ) on the count, it is as one with multiplier z where
z^-2 = z_Δ^-2 + (max(γ, 1 - γ) / σ_b)^2; for the median, z_Δ = (z^-2 - (2σ_b)^-2)^-1/2 ([Andrew],
Theorem 1). Everything that follows from the noised sum, all later C included, costs nothing more.

Sensitivity. The aggregate of a round has the sensitivity of that round's C. Under attention
λ = κ/C moves with it and κ stays, so the sensitivity is C times a constant of the run.

References:
    [Andrew] Andrew, Thakkar, McMahan, Ramaswamy, "Differentially Private Learning with Adaptive
        Clipping", NeurIPS 2021, arXiv:1905.03871, Algorithm 1.
"""

import math

from privacy.clipping.sensitivity import Adjacency
from privacy.clipping.settings import AdaptiveClipping

LEAST_CLIPPING_NORM = 1e-12
"""Where C stops falling, as it does for clients that send nothing but zeros."""

LARGEST_ADAPTED_NORM = 1e12
"""Where C stops rising, as it does for clients that claim to be clipped whatever C is."""


def fit_sensitivity(target_quantile: float, adjacency: Adjacency = "zero-out") -> float:
    """Return how far one client moves Σ (b_k - γ), in clients; 1 where updates are replaced."""
    return 1.0 if adjacency == "replace-one" else max(target_quantile, 1 - target_quantile)


def aggregate_noise_multiplier(
    noise_multiplier: float,
    settings: AdaptiveClipping,
    *,
    adjacency: Adjacency = "zero-out",
) -> float:
    """Return z_Δ, which leaves z for aggregate and count together; ValueError for too small σ_b."""
    if not 0 < noise_multiplier < math.inf:
        raise ValueError(f"noise_multiplier must be > 0 and finite, got {noise_multiplier}")
    least = noise_multiplier * fit_sensitivity(settings.target_quantile, adjacency)
    if settings.count_noise_std <= least:
        raise ValueError(
            f"count_noise_std must be > {least:g} for a noise multiplier of {noise_multiplier:g}, "
            f"got {settings.count_noise_std:g}; raise it (a twentieth of the cohort is usual)"
        )
    share = least / settings.count_noise_std
    # z (1 - (z s / σ_b)²)^-1/2, the same without squares of large numbers.
    return noise_multiplier / math.sqrt((1 - share) * (1 + share))


def fit_excess(fitting_count: int, contribution_count: int, target_quantile: float) -> float:
    """Return Σ (b_k - γ) over the clients that came, before noise: for no log and no file."""
    if not 0 <= fitting_count <= contribution_count:
        raise ValueError(
            f"fitting_count must lie in [0, {contribution_count}], got {fitting_count}"
        )
    return fitting_count - target_quantile * contribution_count


def next_clipping_norm(
    clipping_norm: float, settings: AdaptiveClipping, *, noised_excess: float, slot_count: int
) -> float:
    """Return the norm C of the next round, in parameter units, from the noised Σ (b_k - γ)."""
    if not 0 < clipping_norm < math.inf:
        raise ValueError(f"clipping_norm must be > 0 and finite, got {clipping_norm}")
    if slot_count < 1:
        raise ValueError(f"slot_count must be >= 1, got {slot_count}")
    if not math.isfinite(noised_excess):
        raise ValueError(f"noised_excess must be finite, got {noised_excess}")
    largest = LARGEST_ADAPTED_NORM if settings.largest is None else settings.largest
    # In logarithms, so that no exponent overflows before it meets a limit.
    wanted = math.log(clipping_norm) - settings.step * noised_excess / slot_count
    return math.exp(min(max(wanted, math.log(LEAST_CLIPPING_NORM)), math.log(largest)))
