"""Audit the mechanism of a configuration with canaries, and say what contradicts its claim.

Two figures come of it: the noise multiplier as measured, and a lower bound on the epsilon of one
round. A mode without a guarantee claims nothing, so its figures stand without a comparison.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from models.schema import Schema
from privacy.audit import (
    CanaryEstimate,
    NoiseEstimate,
    estimate_noise_multiplier,
    faults,
    gaussian_epsilon,
    worst_canary,
)
from privacy.audit_bound import EpsilonBound, epsilon_lower_bound, planned_guess_count
from privacy.audit_scores import AuditError
from privacy.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.clipping_settings import AdaptiveClippingSettings
from privacy.settings import PrivacySettings
from server.aggregation.settings import AggregationSettings
from server.guarantee_rules import fixed_slot_count
from simulation.auditing.canaries import (
    Canaries,
    CanaryRounds,
    Coordinator,
    crowd_size,
    make_canaries,
    run_canaries,
)
from simulation.auditing.coordinator import ClosingCoordinator, ListeningCoordinator
from simulation.auditing.rounds_file import RoundsFile
from simulation.config import SimulationConfig

FAILURE_RATE = 1e-4
DEFAULT_PRECISION = 0.025
_LEAST_ROUNDS = 128
# Without a claim, the length of an audit of multiplier 1.
_UNCLAIMED_MULTIPLIER = 1.0


class MechanismAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what canaries say about one mechanism.

    Attributes:
        guarantee: What the noise mode promises, in words.
        neighbours: What canaries differ in: ``zero-out`` or ``replace-one``.
        claimed_noise_multiplier: z as configured; None in a mode without a guarantee.
        claimed_epsilon: Exact ε of one round at that z and ``bound.delta``, without sampling.
        estimate: The noise multiplier as measured.
        worst: The canary that stands out most.
        bound: Lower bound on the ε of one round.
        canary_count: Canaries in a round.
        round_count: Rounds.
        republished: Rounds of which an observer got more than one version.
        faults: What contradicts the claim, a sentence each.
    """

    guarantee: str
    neighbours: str
    claimed_noise_multiplier: float | None
    claimed_epsilon: float | None
    estimate: NoiseEstimate
    worst: CanaryEstimate
    bound: EpsilonBound
    canary_count: int
    round_count: int
    republished: int
    faults: list[str]


class Subject(NamedTuple):
    """Hold what is audited, ready for its rounds.

    Attributes:
        coordinator: Where canaries are sent.
        canaries: Who they are.
        privacy: Clip and noise.
    """

    coordinator: Coordinator
    canaries: Canaries
    privacy: PrivacySettings


def subject(
    schema: Schema,
    aggregation: AggregationSettings,
    privacy: PrivacySettings,
    *,
    slot_count: int,
    seed: int,
) -> Subject:
    """Return a mechanism and canaries that fit it.

    An adaptive clip stays at its start: the aggregate is audited, not the count beside it.

    Args:
        schema: Tensors of the model.
        aggregation: The rule.
        privacy: Clip and noise.
        slot_count: Places of a round, M.
        seed: Seed of the directions and of uncalibrated draws.

    Raises:
        AuditError: If the model is too large, or too small for canaries.
    """
    if isinstance(privacy, AdaptiveClippingSettings) and privacy.adaptive_clipping is not None:
        privacy = msgspec.structs.replace(privacy, adaptive_clipping=None)
    is_local = isinstance(privacy, LocalNoise)
    canaries = make_canaries(
        schema,
        privacy,
        count=1 if is_local else crowd_size(aggregation, schema, slot_count),
        opposes=neighbours_of(privacy) == "replace-one",
        generator=torch.Generator().manual_seed(seed),
    )
    uncalibrated = torch.Generator().manual_seed(seed + 1)
    coordinator: Coordinator = (
        ListeningCoordinator(schema, privacy, uncalibrated)
        if is_local
        else ClosingCoordinator(schema, aggregation, privacy, slot_count, uncalibrated)
    )
    return Subject(coordinator, canaries, privacy)


def slot_count_of(config: SimulationConfig, population_size: int) -> int:
    """Return the places M of a configuration's rounds.

    Args:
        config: The federation.
        population_size: Clients it draws from.
    """
    if isinstance(config.privacy, CentralNoise | TreeNoise):
        return fixed_slot_count(config.rounds, config.privacy)
    return config.rounds.cohort_size_of(population_size)


def neighbours_of(privacy: PrivacySettings) -> str:
    """Return what canaries differ in; without a guarantee, in which way the update points."""
    if isinstance(privacy, CentralNoise | TreeNoise):
        return privacy.adjacency
    return "replace-one"


def claimed_multiplier(privacy: PrivacySettings) -> float | None:
    """Return the noise multiplier that a mode claims; None without a guarantee."""
    if isinstance(privacy, CentralNoise | TreeNoise | LocalNoise):
        return privacy.noise_multiplier
    return None


def rounds_needed(privacy: PrivacySettings, canary_count: int, *, precision: float) -> int:
    """Return how many rounds give the estimate this relative standard error.

    Of n scores, half of either kind, the estimate's relative variance is 4 z²/n + 1/2n.

    Raises:
        AuditError: If the precision is not in (0, 0.1].
    """
    if not 0 < precision <= 0.1:
        raise AuditError(f"precision must be above 0 and at most 0.1, got {precision:g}")
    multiplier = claimed_multiplier(privacy) or _UNCLAIMED_MULTIPLIER
    scores = (4 * multiplier**2 + 0.5) / precision**2
    return max(_LEAST_ROUNDS, math.ceil(scores / canary_count))


def judge(privacy: PrivacySettings, rounds: CanaryRounds) -> MechanismAudit:
    """Return what the scores say about the claim.

    Raises:
        AuditError: If a score is not finite, or there are too few.
    """
    claimed = claimed_multiplier(privacy)
    estimate = estimate_noise_multiplier(rounds.scores, rounds.included, failure_rate=FAILURE_RATE)
    worst = worst_canary(rounds.scores, rounds.included, failure_rate=FAILURE_RATE)
    bound = _bound(rounds, claimed or _UNCLAIMED_MULTIPLIER)
    epsilon = None if claimed is None else gaussian_epsilon(claimed, bound.delta)
    return MechanismAudit(
        guarantee=privacy.guarantee,
        neighbours="any two data sets"
        if isinstance(privacy, LocalNoise)
        else neighbours_of(privacy),
        claimed_noise_multiplier=claimed,
        claimed_epsilon=epsilon,
        estimate=estimate,
        worst=worst,
        bound=bound,
        canary_count=rounds.scores.shape[1],
        round_count=rounds.round_count,
        republished=rounds.republished,
        faults=[
            *(faults(claimed, estimate, worst) if claimed is not None else []),
            *_hard_faults(rounds, bound, epsilon),
        ],
    )


def _bound(rounds: CanaryRounds, multiplier: float) -> EpsilonBound:
    count = rounds.scores.size
    # So small that its term in the bound is a hundredth of the failure rate at most.
    delta = FAILURE_RATE / (200 * count)
    guesses = planned_guess_count(count, multiplier, delta=delta, failure_rate=FAILURE_RATE)
    return epsilon_lower_bound(
        rounds.scores.ravel(),
        rounds.included.ravel(),
        guess_count=guesses,
        delta=delta,
        failure_rate=FAILURE_RATE,
    )


def _hard_faults(rounds: CanaryRounds, bound: EpsilonBound, epsilon: float | None) -> list[str]:
    found = []
    if epsilon is not None and bound.epsilon > epsilon:
        found.append(
            f"one round spends an epsilon above {bound.epsilon:.3g} at delta {bound.delta:.1e}, "
            f"{epsilon:.3g} is claimed"
        )
    if rounds.republished:
        found.append(
            f"{rounds.republished} rounds were published more than once with other noise: "
            "whoever averages them takes noise out"
        )
    return found


def audit_mechanism(
    subject: Subject,
    *,
    round_count: int,
    seed: int,
    kept: RoundsFile | None = None,
    on_round: Callable[[int], None] | None = None,
) -> MechanismAudit:
    """Run the rounds that are left and judge them.

    Args:
        subject: What is audited.
        round_count: Rounds in all.
        seed: Seed of the coins.
        kept: Where the scores lie between runs.
        on_round: Hears how many rounds are done.
    """

    def after_round(rounds: CanaryRounds) -> None:
        if kept is not None:
            kept.write(rounds)
        if on_round is not None:
            on_round(rounds.round_count)

    rounds = run_canaries(
        subject.coordinator,
        subject.canaries,
        round_count=round_count,
        seed=seed,
        before=None if kept is None else kept.read(),
        after_round=after_round,
    )
    return judge(subject.privacy, rounds)
