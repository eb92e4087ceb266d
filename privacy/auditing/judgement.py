"""The estimators together: what scores of canaries say about a claimed noise multiplier."""

import msgspec

from privacy.accounting.checked_values import check_noise_multiplier
from privacy.auditing.noise_estimate import (
    CanaryEstimate,
    NoiseEstimate,
    estimate_noise_multiplier,
    faults,
    gaussian_epsilon,
    worst_canary,
)
from privacy.auditing.one_run_bound import EpsilonBound, epsilon_lower_bound, planned_guess_count
from privacy.auditing.scores import Coins, Scores

FAILURE_RATE = 1e-4
"""Chance that one of the bounds is wrong: confidence 99.99 %."""
UNCLAIMED_MULTIPLIER = 1.0
"""Noise multiplier for which guesses and an audit's length are planned if none is claimed."""

# So much below failure_rate / canaries that delta hardly weakens the bound.
_DELTA_SHARE = 1 / 200


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The figures and faults that scores show.

    Attributes:
        claimed_noise_multiplier: z of the claim; None where nothing is claimed.
        claimed_epsilon: Exact ε of one round at that z and ``bound.delta``, without sampling.
        worst: The canary that stands out most.
        bound: Lower bound on the ε of one round.
        faults: Contradictions of the claim, a sentence each.
    """

    claimed_noise_multiplier: float | None
    claimed_epsilon: float | None
    estimate: NoiseEstimate
    worst: CanaryEstimate
    bound: EpsilonBound
    canary_count: int
    round_count: int
    faults: list[str]


def judge(scores: Scores, included: Coins, *, claimed: float | None) -> Judgement:
    """Return what scores say about a claim; each canary and round is a coin of its own.

    Scores (float64) and coins have shape ``(rounds, canaries)``. The claim is the z that the ledger
    names; None where no guarantee is claimed.

    Raises:
        AuditError: If a score is not finite, shapes do not fit, or there are too few.
        ValueError: If the claim is no noise multiplier.
    """
    if claimed is not None:
        check_noise_multiplier(claimed, "claimed noise multiplier")
    estimate = estimate_noise_multiplier(scores, included, failure_rate=FAILURE_RATE)
    worst = worst_canary(scores, included, failure_rate=FAILURE_RATE)
    bound = _bound(scores, included, claimed or UNCLAIMED_MULTIPLIER)
    epsilon = None if claimed is None else gaussian_epsilon(claimed, bound.delta)
    found = [] if claimed is None else faults(claimed, estimate, worst)
    if epsilon is not None and bound.epsilon > epsilon:
        found.append(
            f"one round spends an epsilon above {bound.epsilon:.3g} at delta {bound.delta:.1e}, "
            f"{epsilon:.3g} is claimed"
        )
    return Judgement(
        claimed_noise_multiplier=claimed,
        claimed_epsilon=epsilon,
        estimate=estimate,
        worst=worst,
        bound=bound,
        canary_count=scores.shape[1],
        round_count=scores.shape[0],
        faults=found,
    )


def in_words(judgement: Judgement) -> dict[str, str]:
    """Return the figures in words, by what they are, in the order to read them in."""
    estimate, bound, worst = judgement.estimate, judgement.bound, judgement.worst
    claimed, epsilon = judgement.claimed_noise_multiplier, judgement.claimed_epsilon
    return {
        "noise multiplier, claimed": "none" if claimed is None else f"{claimed:.4g}",
        "noise multiplier, measured": (
            f"{estimate.noise_multiplier:.3g}, between {estimate.lower:.3g} and "
            f"{estimate.upper:.3g}"
        ),
        "noise multiplier, worst canary": f"{worst.noise_multiplier:.3g}, below {worst.upper:.3g}",
        f"epsilon of one round at delta {bound.delta:.1e}, claimed": (
            "none" if epsilon is None else f"{epsilon:.3g}"
        ),
        "epsilon of one round, refuted up to": (
            f"{bound.epsilon:.3g} ({bound.correct_count} of {bound.guess_count} guesses right)"
        ),
        "canaries": f"{judgement.canary_count} in each of {judgement.round_count} rounds",
    }


def verdict(judgement: Judgement) -> str:
    """Return in one line what the canaries say about the claim."""
    if judgement.claimed_noise_multiplier is None:
        return "This mode carries no guarantee: there is no epsilon to compare with."
    if judgement.faults:
        return "The claim does not hold."
    return "Nothing contradicts the claim. That is no proof of it."


def _bound(scores: Scores, included: Coins, multiplier: float) -> EpsilonBound:
    delta = FAILURE_RATE * _DELTA_SHARE / scores.size
    guesses = planned_guess_count(scores.size, multiplier, delta=delta, failure_rate=FAILURE_RATE)
    return epsilon_lower_bound(
        scores.ravel(),
        included.ravel(),
        guess_count=guesses,
        delta=delta,
        failure_rate=FAILURE_RATE,
    )
