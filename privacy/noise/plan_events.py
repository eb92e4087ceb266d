"""The accountant's events of a federation's rounds and evaluations, from its settings alone.

The coordinator, the simulation and ``sotto-privacy`` ask here, so that a plan means the same to all
of them. No torch: a file is checked before torch is needed.
"""

from functools import lru_cache
from typing import assert_never

from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.events import (
    BufferedRelease,
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.slot_overflow import (
    LARGEST_SHARE_OF_DELTA,
    overflow_probability,
    slot_count_for,
)
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.evaluation_settings import MeasuredModels
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.participation_settings import Participation
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings


def event_of(round_number: int, rounds: Participation, privacy: PrivacySettings) -> PrivacyEvent:
    """Return what the release of a round, from 1, is; under ``local`` each attempt at it.

    Raises:
        ValueError: If the settings do not say enough for the mode.
    """
    match privacy:
        case NoNoise() | PaperNoise() | PaperServerNoise():
            return _unprotected(privacy)
        case LocalNoise():
            return LocalRelease(noise_multiplier=privacy.noise_multiplier)
        case CentralNoise():
            return GaussianRelease(
                noise_multiplier=privacy.noise_multiplier,
                adjacency=privacy.adjacency,
                sampling=_coins(rounds, privacy),
            )
        case TreeNoise():
            return _correlated(round_number, privacy)
        case MaskedNoise():
            return MaskedRelease(
                noise_multiplier=privacy.noise_multiplier,
                adjacency=privacy.adjacency,
                honest_contributors=_honest(rounds, privacy),
            )
        case _:
            assert_never(privacy)


def attempt_event(rounds: Participation, privacy: PrivacySettings) -> PrivacyEvent | None:
    """Return what an attempt at a round shows the coordinator, whatever comes of it.

    It is entered before the attempt's first lease. None in modes whose release alone counts.

    Raises:
        ValueError: As `event_of`.
    """
    match privacy:
        case LocalNoise():
            return LocalRelease(noise_multiplier=privacy.noise_multiplier)
        case MaskedNoise():
            return MaskedAttempt(
                noise_multiplier=privacy.noise_multiplier,
                adjacency=privacy.adjacency,
                honest_contributors=_honest(rounds, privacy),
            )
        case _:
            return None


def events_of(
    round_number: int, rounds: Participation, privacy: PrivacySettings
) -> tuple[PrivacyEvent, ...]:
    """Return every event of a round whose first attempt is released, in their order.

    Raises:
        ValueError: As `event_of`.
    """
    released = event_of(round_number, rounds, privacy)
    attempted = attempt_event(rounds, privacy)
    # Under ``local`` the attempt is all that shows anything.
    return (released,) if attempted in (None, released) else (attempted, released)


def evaluation_event(
    evaluation: MeasuredModels, rounds: Participation, privacy: PrivacySettings
) -> EvaluationRelease | None:
    """Return what one evaluation is; None where devices are not asked, or nothing is promised.

    Raises ValueError if coins draw the devices and are not accounted for with the adjacency.
    """
    noise, size = evaluation.noise, evaluation.cohort_size
    if noise is None or size is None or not isinstance(privacy, CentralNoise | TreeNoise):
        return None
    sampling, people = None, rounds.population_size
    if rounds.selection == "sampled" and people is not None:
        # A place for everybody: a sum has no denominator that would have to be fixed.
        sampling = SecretCoinFlips(
            sampling_rate=size / people, population_size=people, slot_count=people
        )
    return EvaluationRelease(
        noise_multiplier=noise.noise_multiplier, adjacency=privacy.adjacency, sampling=sampling
    )


def budget_of(privacy: PrivacySettings) -> PrivacyBudget | None:
    """Return what the run may spend against readers, or None where nothing is promised."""
    if isinstance(privacy, LocalNoise | CentralNoise | TreeNoise | MaskedNoise):
        return PrivacyBudget(epsilon_budget=privacy.epsilon_budget, delta=privacy.delta)
    return None


def budgets_of(privacy: PrivacySettings) -> tuple[PrivacyBudget, ...]:
    """Return everything that the run has to keep: one budget an onlooker, readers' first."""
    readers = budget_of(privacy)
    if readers is None:
        return ()
    if not isinstance(privacy, MaskedNoise):
        return (readers,)
    coordinator = PrivacyBudget(
        epsilon_budget=privacy.coordinator_epsilon_budget,
        delta=privacy.delta,
        onlooker="coordinator",
    )
    return readers, coordinator


def fixed_slot_count(rounds: Participation, privacy: PrivacySettings) -> int:
    """Return the fixed number of places M that a guarantee counts with.

    Raises:
        ValueError: If the settings fix none, or so few that sampled cohorts overflow too often.
    """
    if rounds.selection == "sampled":
        return _sampled_slots(rounds, privacy)
    if rounds.cohort_size is None:
        raise ValueError(
            "rounds.cohort_size must be given under a guarantee: participation_rate makes it "
            "follow the population, and the noise with it"
        )
    return rounds.cohort_size


def sampled_places(rounds: Participation, privacy: PrivacySettings) -> int | None:
    """Return the places of a round whose cohort is sampled, or None for other cohorts."""
    return fixed_slot_count(rounds, privacy) if rounds.selection == "sampled" else None


def _unprotected(privacy: NoNoise | PaperNoise | PaperServerNoise) -> UnprotectedRelease:
    match privacy:
        case NoNoise():
            return UnprotectedRelease(mode="none")
        case PaperNoise():
            return UnprotectedRelease(mode="paper")
        case PaperServerNoise():
            return UnprotectedRelease(mode="paper-server")


def _honest(rounds: Participation, privacy: MaskedNoise) -> int:
    if rounds.quorum is None:
        raise ValueError(
            'rounds.quorum must be given with privacy.mode = "masked": the noise of the fewest '
            "contributors counts"
        )
    return privacy.honest_contributors(rounds.quorum)


def _correlated(round_number: int, privacy: TreeNoise) -> TreeRelease | BufferedRelease:
    if privacy.buffers is None:
        return TreeRelease(
            noise_multiplier=privacy.noise_multiplier,
            adjacency=privacy.adjacency,
            min_separation=privacy.min_separation,
            max_participation=privacy.max_participation,
            tree_number=privacy.place_in_tree(round_number)[0],
        )
    decays, scales = privacy.buffers
    return BufferedRelease(
        noise_multiplier=privacy.noise_multiplier,
        adjacency=privacy.adjacency,
        min_separation=privacy.min_separation,
        max_participation=privacy.max_participation,
        buffer_decays=decays,
        buffer_scales=scales,
    )


def _coins(rounds: Participation, privacy: CentralNoise) -> SecretCoinFlips | None:
    """Return the draw if it amplifies: devices that choose themselves, or few of many, do not."""
    if rounds.selection != "sampled":
        return None
    return SecretCoinFlips(
        sampling_rate=rounds.participation_rate or 0,
        population_size=rounds.population_size or 0,
        slot_count=_sampled_slots(rounds, privacy),
    )


def _sampled_slots(rounds: Participation, privacy: PrivacySettings) -> int:
    # The settings of sampled rounds see to it that rate and population are there.
    population, rate = rounds.population_size or 0, rounds.participation_rate or 0
    if not isinstance(privacy, CentralNoise):
        raise ValueError('rounds.selection = "sampled" needs privacy.mode = "central"')
    least = _least_slots(population, rate, rounds.cap, privacy.delta)
    if rounds.cohort_size is None:
        return least
    overflow = rounds.cap * overflow_probability(population, rate, rounds.cohort_size)
    if overflow > privacy.delta * LARGEST_SHARE_OF_DELTA:
        raise ValueError(
            f"rounds.cohort_size must be >= {least} for coins of {rate:g} over {population} "
            f"devices in {rounds.cap} rounds, got {rounds.cohort_size}: more would be drawn with "
            f"a chance of {overflow:.2g}, above delta / 10; leave cohort_size out to get {least}"
        )
    return rounds.cohort_size


@lru_cache(maxsize=64)
def _least_slots(population: int, rate: float, rounds: int, delta: float) -> int:
    return slot_count_for(population, rate, rounds=rounds, delta=delta)
