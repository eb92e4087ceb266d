"""How much noise a release really has, estimated from canaries, and what contradicts a claim.

A canary is a made-up client whose update lies along a direction that only the auditor knows, at
the largest norm that may pass. A coin decides for each canary and round whether it takes part. Its
score is the product of the release with its direction: N(a, σ²) where it took part and N(0, σ²)
where it did not, a being how far one client moves the release and σ the noise. The Gaussian
mechanism's noise multiplier is σ/a, whatever the dimension and whatever scales the release.

[Andrew] score by cosine, send every canary and take what absent ones would score from theory. Here
absent canaries are measured too, so that nothing need be known about what else is in a release.

The mechanism as it ran, with this noise, this clip and this number of publications, is as private
as a Gaussian mechanism with the estimated multiplier against an observer who sees every
publication. The estimate measures the direction and the worst case that the canaries are, so it
finds faults, and proves no guarantee.

References:
    [Andrew] Andrew et al., "One-shot Empirical Privacy Estimation for Federated Learning",
        ICLR 2024, arXiv:2302.03098 (canaries in random directions; epsilon from how far the
        scores with and without lie apart).
    [Balle, Wang] "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018,
        arXiv:1805.06530, Theorem 8 (the exact trade-off of epsilon and delta).
"""

import math

import msgspec
from numpy.typing import ArrayLike
from scipy import optimize, special

from privacy.accounting.checked_values import check_delta, check_noise_multiplier
from privacy.auditing.scores import (
    AuditError,
    Coins,
    Scores,
    check_failure_rate,
    checked_coins,
    checked_scores,
    require_both_kinds,
)

LEAST_CANARIES = 30
"""Canaries of each kind, from which a mean is close enough to normal and σ is known to a tenth."""


class NoiseEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The noise multiplier that scores show.

    Attributes:
        noise_multiplier: z as measured, σ/a; infinite where canaries cannot be told apart.
        lower: The true z is above this with at least the confidence asked for, and
        upper: below this, each side by itself.
        displacement: a, mean score of included less mean score of left-out canaries.
        noise_std: σ, standard deviation of scores around their mean.
    """

    noise_multiplier: float
    lower: float
    upper: float
    displacement: float
    noise_std: float
    included_count: int
    left_out_count: int


class CanaryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The canary, by its column, that stands out most of several with many rounds each.

    z is as this canary alone sees it; ``upper`` is above the true z of every canary with at least
    the confidence asked for.
    """

    canary: int
    noise_multiplier: float
    upper: float


def estimate_noise_multiplier(
    scores: ArrayLike, included: ArrayLike, *, failure_rate: float = 1e-4
) -> NoiseEstimate:
    """Estimate z = σ/a from all scores together ([Andrew], with one σ for both kinds).

    Scores and coins may have any one shape. ``failure_rate`` is the chance that one of the bounds
    is wrong, by the normal approximation to the separation a/σ, of variance 1/n₁ + 1/n₀ +
    (a/σ)²/2n. Raises AuditError if a score is not finite, the shapes differ, or there are fewer
    than ``LEAST_CANARIES`` of either kind.
    """
    values = checked_scores(scores)
    coins = checked_coins(included, values)
    counts = require_both_kinds(coins, LEAST_CANARIES)
    check_failure_rate(failure_rate)
    displacement = _displacement(values, coins)
    noise_std = _pooled_std(values, coins)
    separation = _ratio(displacement, noise_std)
    reach = _reach(separation, counts, values.size, failure_rate)
    return NoiseEstimate(
        noise_multiplier=_multiplier(separation),
        lower=_multiplier(separation + reach),
        upper=_multiplier(separation - reach),
        displacement=displacement,
        noise_std=noise_std,
        included_count=counts[0],
        left_out_count=counts[1],
    )


def worst_canary(
    scores: ArrayLike, included: ArrayLike, *, failure_rate: float = 1e-4
) -> CanaryEstimate:
    """Find the canary that moved the release most, as one that is counted twice does.

    Scores and coins have shape ``(rounds, canaries)``; each column is one client. ``failure_rate``
    is the chance that ``upper`` is wrong for any canary; each has its equal share.

    Raises:
        AuditError: As ``estimate_noise_multiplier``, each canary by itself.
    """
    values = checked_scores(scores)
    coins = checked_coins(included, values)
    if values.ndim != 2:
        raise AuditError(f"scores must have shape (rounds, canaries), got {values.shape}")
    share = check_failure_rate(failure_rate) / values.shape[1]
    # σ is the same for all: what one canary's few scores say about it is not asked.
    noise_std = _pooled_std(values, coins)
    found = []
    for canary in range(values.shape[1]):
        own, own_coins = values[:, canary], coins[:, canary]
        counts = require_both_kinds(own_coins, LEAST_CANARIES)
        separation = _ratio(_displacement(own, own_coins), noise_std)
        least = separation - _reach(separation, counts, values.size, share)
        found.append(
            CanaryEstimate(
                canary=canary,
                noise_multiplier=_multiplier(separation),
                upper=_multiplier(least),
            )
        )
    return min(found, key=lambda canary: canary.upper)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the exact ε of one Gaussian release without sampling ([Balle, Wang] Theorem 8).

    ε solves δ = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), μ = 1/z. No noise gives infinity, infinite noise
    0; a negative z is a ValueError.
    """
    check_delta(delta)
    if not noise_multiplier >= 0:
        raise ValueError(f"noise_multiplier must be >= 0, got {noise_multiplier}")
    if noise_multiplier == 0:
        return math.inf
    mean = 1 / noise_multiplier

    def excess(epsilon: float) -> float:
        first = special.log_ndtr(mean / 2 - epsilon / mean)
        second = epsilon + special.log_ndtr(-mean / 2 - epsilon / mean)
        return float(math.exp(first) * -math.expm1(min(second - first, 0.0)) - delta)

    if mean == 0 or excess(0.0) <= 0:
        return 0.0
    # Φ(μ/2 - ε/μ) alone is below δ there.
    largest = mean * (mean / 2 - float(special.ndtri(delta)))
    return float(optimize.brentq(excess, 0.0, largest, xtol=1e-12, rtol=1e-12))


def faults(claimed: float, pooled: NoiseEstimate, worst: CanaryEstimate | None = None) -> list[str]:
    """Return what contradicts a claimed z, a sentence each; nothing is no proof."""
    check_noise_multiplier(claimed, "claimed noise multiplier")
    found = []
    if pooled.upper < claimed:
        found.append(
            f"the noise multiplier is {pooled.noise_multiplier:.3g} and below {pooled.upper:.3g}, "
            f"{claimed:.3g} is claimed: too little noise, no clip, or more than one draw of noise"
        )
    if worst is not None and worst.upper < claimed:
        found.append(
            f"canary {worst.canary} sees a noise multiplier of {worst.noise_multiplier:.3g}, below "
            f"{worst.upper:.3g}, {claimed:.3g} is claimed: one client counts more than once"
        )
    return found


def _displacement(values: Scores, coins: Coins) -> float:
    return float(values[coins].mean() - values[~coins].mean())


def _reach(
    separation: float, counts: tuple[int, int], score_count: int, failure_rate: float
) -> float:
    """Return how far the true separation may lie away, on one side."""
    variance = 1 / counts[0] + 1 / counts[1] + separation**2 / (2 * (score_count - 2))
    return math.sqrt(variance) * float(special.ndtri(1 - failure_rate))


def _pooled_std(values: Scores, coins: Coins) -> float:
    squares = sum(float(part.var()) * part.size for part in (values[coins], values[~coins]))
    return math.sqrt(squares / (values.size - 2))


def _ratio(displacement: float, noise_std: float) -> float:
    if noise_std > 0:
        return displacement / noise_std
    return math.inf if displacement > 0 else 0.0


def _multiplier(separation: float) -> float:
    """Return 1 / separation; a canary that cannot be seen is hidden by any amount of noise."""
    if math.isinf(separation) or math.isnan(separation):
        return 0.0
    return 1 / separation if separation > 0 else math.inf
