"""Refuse settings that do not go together under a guarantee, and say what a round releases.

Each struct checks what it can see; these are the rules between noise mode, cohorts and rule.
``server.config.evaluation_rules`` holds those of evaluations.
"""

from functools import lru_cache
from typing import assert_never

from models.vector.schema import Schema
from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.checked_values import check_delta
from privacy.accounting.events import (
    GaussianRelease,
    LocalRelease,
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
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AggregationSettings, MeanSettings
from server.config.rounds import RoundSettings


def check_guarantee(
    schema: Schema,
    privacy: PrivacySettings,
    aggregation: AggregationSettings,
    rounds: RoundSettings,
) -> None:
    """Check what a noise mode with a guarantee needs; ``schema`` is what a round releases.

    Raises:
        ValueError: If it is not there; names the setting and the remedy.
    """
    if rounds.selection == "sampled" and not isinstance(privacy, CentralNoise):
        raise ValueError(
            'rounds.selection = "sampled" draws cohorts for privacy.mode = "central"; '
            'use "drawn" or "first-come"'
        )
    match privacy:
        case NoNoise() | PaperNoise() | PaperServerNoise():
            return
        case LocalNoise():
            _check_equal_weights(aggregation)
            _check_one_update_an_attempt(rounds)
        case CentralNoise() | TreeNoise():
            slots = fixed_slot_count(rounds, privacy)
            aggregate_sensitivity(
                aggregation, schema, privacy, slot_count=slots, adjacency=privacy.adjacency
            )
        case _:
            assert_never(privacy)
    event_of(1, rounds, privacy)  # Refuses draws that no accountant amplifies.
    if rounds.population_size is not None:
        check_delta(privacy.delta, population_size=rounds.population_size)


def fixed_slot_count(rounds: RoundSettings, privacy: PrivacySettings) -> int:
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


def sampled_places(rounds: RoundSettings, privacy: PrivacySettings) -> int | None:
    """Return the places of a round whose cohort is sampled, or None for other cohorts."""
    return fixed_slot_count(rounds, privacy) if rounds.selection == "sampled" else None


def event_of(round_number: int, rounds: RoundSettings, privacy: PrivacySettings) -> PrivacyEvent:
    """Return what a round's release, or an attempt under ``local``, tells the accountant."""
    match privacy:
        case NoNoise():
            return UnprotectedRelease(mode="none")
        case PaperNoise():
            return UnprotectedRelease(mode="paper")
        case PaperServerNoise():
            return UnprotectedRelease(mode="paper-server")
        case LocalNoise():
            return LocalRelease(noise_multiplier=privacy.noise_multiplier)
        case CentralNoise():
            return GaussianRelease(
                noise_multiplier=privacy.noise_multiplier,
                adjacency=privacy.adjacency,
                sampling=_coins(rounds, privacy),
            )
        case TreeNoise():
            return TreeRelease(
                noise_multiplier=privacy.noise_multiplier,
                adjacency=privacy.adjacency,
                min_separation=privacy.min_separation,
                max_participation=privacy.max_participation,
                tree_number=privacy.place_in_tree(round_number)[0],
            )
        case _:
            assert_never(privacy)


def budget_of(privacy: PrivacySettings) -> PrivacyBudget | None:
    """Return what the run may spend, or None if nothing is promised."""
    if isinstance(privacy, LocalNoise | CentralNoise | TreeNoise):
        return PrivacyBudget(epsilon_budget=privacy.epsilon_budget, delta=privacy.delta)
    return None


def _coins(rounds: RoundSettings, privacy: CentralNoise) -> SecretCoinFlips | None:
    """Return the draw if it amplifies: devices that choose themselves, or few of many, do not."""
    if rounds.selection != "sampled":
        return None
    return SecretCoinFlips(
        sampling_rate=rounds.participation_rate or 0,
        population_size=rounds.population_size or 0,
        slot_count=fixed_slot_count(rounds, privacy),
    )


def _sampled_slots(rounds: RoundSettings, privacy: PrivacySettings) -> int:
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


def _check_one_update_an_attempt(rounds: RoundSettings) -> None:
    if rounds.selection != "drawn":
        raise ValueError(
            f'rounds.selection must be "drawn" with privacy.mode = "local", got '
            f'"{rounds.selection}": a device that came first and lost its place may get another in '
            "the same attempt, and sends a second noised update, while an attempt is paid for "
            f'once; set selection = "drawn"'
        )


@lru_cache(maxsize=64)
def _least_slots(population: int, rate: float, rounds: int, delta: float) -> int:
    return slot_count_for(population, rate, rounds=rounds, delta=delta)


def _check_equal_weights(aggregation: AggregationSettings) -> None:
    if isinstance(aggregation, MeanSettings) and aggregation.weighting == "examples":
        raise ValueError(
            'aggregation.weighting = "examples" needs counts that no noise covers; '
            'set weighting = "equal"'
        )
