"""Audit the mechanism of a configuration with canaries, and say what contradicts its claim.

The figures are the measured noise multiplier and a lower bound on one round's epsilon. A mode
without a guarantee claims nothing, so its figures have no comparison.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from models.masked.layout import layout_of_sums
from models.settings.weighing import Weighing
from models.vector.schema import Schema
from privacy.accounting.onlookers import AGAINST
from privacy.auditing.judgement import UNCLAIMED_MULTIPLIER, Judgement, judge
from privacy.auditing.scores import AuditError
from privacy.clipping.settings import AdaptiveClippingSettings
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import fixed_slot_count
from privacy.noise.settings import PrivacySettings
from server.aggregation.settings import AggregationSettings, MeanSettings
from server.config.plans import weighing_of
from simulation.auditing.canaries import (
    Canaries,
    CanaryRounds,
    Coordinator,
    crowd_size,
    make_canaries,
    run_canaries,
)
from simulation.auditing.coordinator import ClosingCoordinator, ListeningCoordinator
from simulation.auditing.masked_sums import UnmaskingCoordinator
from simulation.auditing.rounds_file import RoundsFile
from simulation.auditing.summed_weights import faults_of_weights
from simulation.config.simulation import SimulationConfig

_LEAST_ROUNDS = 128


class MechanismAudit(Judgement, frozen=True, kw_only=True):
    """The evidence of canaries about one mechanism.

    Attributes:
        guarantee: The promise of the noise mode, in words.
        neighbours: ``zero-out``, ``replace-one`` or any two data sets: what canaries differ in.
        republished: Rounds of which an observer got more than one version.
        claimed_against: Onlookers against whom the mode claims what is audited, in words.
    """

    guarantee: str
    claimed_against: str
    neighbours: str
    republished: int


class Subject(NamedTuple):
    """The parts of an audit, ready for its rounds."""

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
    quorum: int | None = None,
) -> Subject:
    """Return a mechanism and canaries that fit it.

    An adaptive clip stays at its start: the aggregate is audited, not the count beside it.
    ``slot_count`` is M; the seed fixes directions and uncalibrated draws. Under masks ``quorum``,
    or else all places, says how many shares of the noise there are.

    Raises:
        AuditError: If the model is too large, or too small for canaries.
    """
    if isinstance(privacy, AdaptiveClippingSettings) and privacy.adaptive_clipping is not None:
        privacy = msgspec.structs.replace(privacy, adaptive_clipping=None)
    if isinstance(privacy, MaskedNoise):
        privacy = msgspec.structs.replace(privacy, adaptive_clipping=None)
        return _masked_subject(
            schema,
            weighing_of(aggregation),
            privacy,
            slot_count=slot_count,
            quorum=quorum or slot_count,
            seed=seed,
        )
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


def _masked_subject(
    schema: Schema,
    weighing: Weighing,
    privacy: MaskedNoise,
    *,
    slot_count: int,
    quorum: int,
    seed: int,
) -> Subject:
    honest = privacy.honest_contributors(quorum)
    canaries = make_canaries(
        schema,
        privacy,
        # Nobody is hidden by the others in a sum, but each needs a direction, and has a share.
        count=min(honest, crowd_size(MeanSettings(), schema, slot_count)),
        opposes=privacy.adjacency == "replace-one",
        generator=torch.Generator().manual_seed(seed),
    )
    layout = layout_of_sums(schema, weighing, privacy, cohort_size=slot_count, quorum=quorum)
    return Subject(UnmaskingCoordinator(layout, privacy, canaries, honest), canaries, privacy)


def slot_count_of(config: SimulationConfig, population_size: int) -> int:
    """Return the places M of a configuration's rounds."""
    if isinstance(config.privacy, CentralNoise | TreeNoise):
        return fixed_slot_count(config.rounds, config.privacy)
    return config.rounds.cohort_size_of(population_size)


def neighbours_of(privacy: PrivacySettings) -> str:
    """Return what canaries differ in; without a guarantee, in which way the update points."""
    if isinstance(privacy, CentralNoise | TreeNoise | MaskedNoise):
        return privacy.adjacency
    return "replace-one"


def claimed_multiplier(privacy: PrivacySettings) -> float | None:
    """Return the noise multiplier that a mode claims; None without a guarantee."""
    if isinstance(privacy, CentralNoise | TreeNoise | LocalNoise | MaskedNoise):
        return privacy.noise_multiplier
    return None


def claimed_against(privacy: PrivacySettings) -> str:
    """Return the onlookers against whom a mode claims its noise multiplier, in words.

    Under ``masked`` one multiplier holds for both: that of the honest contributors' noise.
    """
    if not privacy.guarantees_privacy:
        return "nobody"
    if isinstance(privacy, LocalNoise | MaskedNoise):
        return f"{AGAINST['readers']} and {AGAINST['coordinator']}"
    return AGAINST["readers"]


def rounds_needed(privacy: PrivacySettings, canary_count: int, *, precision: float) -> int:
    """Return how many rounds give the estimate this relative standard error.

    With n scores, half of either kind, the estimate's relative variance is 4 z²/n + 1/2n.

    Raises:
        AuditError: If the precision is not in (0, 0.1].
    """
    if not 0 < precision <= 0.1:
        raise AuditError(f"precision must be above 0 and at most 0.1, got {precision:g}")
    multiplier = claimed_multiplier(privacy) or UNCLAIMED_MULTIPLIER
    scores = (4 * multiplier**2 + 0.5) / precision**2
    return max(_LEAST_ROUNDS, math.ceil(scores / canary_count))


def judge_rounds(privacy: PrivacySettings, rounds: CanaryRounds) -> MechanismAudit:
    """Return what the scores say about the claim of a noise mode.

    Raises:
        AuditError: If a score is not finite, or there are too few.
    """
    judgement = judge(rounds.scores, rounds.included, claimed=claimed_multiplier(privacy))
    figures = msgspec.structs.asdict(judgement)
    figures["faults"] = [*judgement.faults, *_republication(rounds)]
    is_local = isinstance(privacy, LocalNoise)
    return MechanismAudit(
        **figures,
        guarantee=privacy.guarantee,
        claimed_against=claimed_against(privacy),
        neighbours="any two data sets" if is_local else neighbours_of(privacy),
        republished=rounds.republished,
    )


def _republication(rounds: CanaryRounds) -> list[str]:
    if not rounds.republished:
        return []
    return [
        f"{rounds.republished} rounds were published more than once with other noise: "
        "whoever averages them takes noise out"
    ]


def audit_mechanism(
    subject: Subject,
    *,
    round_count: int,
    seed: int,
    kept: RoundsFile | None = None,
    on_round: Callable[[int], None] | None = None,
) -> MechanismAudit:
    """Run what is left of ``round_count`` rounds in all, and judge them."""

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
    judged = judge_rounds(subject.privacy, rounds)
    faults = [*judged.faults, *faults_of_weights(subject.coordinator)]
    return msgspec.structs.replace(judged, faults=faults)
