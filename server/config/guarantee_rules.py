"""Refuse noise mode, cohorts and rule that do not go together under a guarantee."""

from typing import assert_never

from models.vector.schema import Schema
from privacy.accounting.checked_values import check_delta
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import event_of, fixed_slot_count
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from server.aggregation.sensitivity import noised_sensitivity
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
        case MaskedNoise():
            pass  # The devices' weights and clips bound it: ``server.config.masked_rules``.
        case CentralNoise() | TreeNoise():
            slots = fixed_slot_count(rounds, privacy)
            noised_sensitivity(
                aggregation, schema, privacy, slot_count=slots, adjacency=privacy.adjacency
            )
        case _:
            assert_never(privacy)
    event_of(1, rounds, privacy)  # Refuses draws that no accountant amplifies.
    if rounds.population_size is not None:
        check_delta(privacy.delta, population_size=rounds.population_size)


def _check_one_update_an_attempt(rounds: RoundSettings) -> None:
    if rounds.selection != "drawn":
        raise ValueError(
            f'rounds.selection must be "drawn" with privacy.mode = "local", got '
            f'"{rounds.selection}": a device that came first and lost its place may get another in '
            "the same attempt, and sends a second noised update, while an attempt is paid for "
            f'once; set selection = "drawn"'
        )


def _check_equal_weights(aggregation: AggregationSettings) -> None:
    if isinstance(aggregation, MeanSettings) and aggregation.weighting == "examples":
        raise ValueError(
            'aggregation.weighting = "examples" needs counts that no noise covers; '
            'set weighting = "equal"'
        )
