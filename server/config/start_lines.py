"""Tell people at a run's start, deployed or simulated, what its guarantee comes to."""

from collections.abc import Sequence

from models.vector.schema import Role
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import PrivacyEvent
from privacy.commands.budget import CHEAP_ATTENTION, price_line
from privacy.commands.sums_in_words import price_line_of_sums
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.plan_events import event_of, fixed_slot_count
from privacy.noise.settings import noises_sums
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.config.evaluation_rules import coming_evaluations
from server.config.federation import FederationConfig


def outlook(
    config: FederationConfig, *, spent: Sequence[PrivacyEvent] = (), first_round: int = 1
) -> list[str]:
    """Return lines on what the run promises and, after ``spent``, will have spent; takes a while.

    Raises:
        ValueError: If the events do not add up.
    """
    return [*_of_people(config, spent, first_round), *_beside(config)]


def promises(config: FederationConfig) -> list[str]:
    """Return what a run promises, without sums: on people, on sentences, on what it starts from."""
    return [config.privacy.guarantee, *_beside(config)]


def _of_people(
    config: FederationConfig, spent: Sequence[PrivacyEvent], first_round: int
) -> list[str]:
    privacy, rounds = config.privacy, config.rounds
    if not isinstance(privacy, LocalNoise | CentralNoise | TreeNoise):
        return [privacy.guarantee]
    numbers = range(first_round, rounds.cap + 1)
    coming = [event_of(number, rounds, privacy) for number in numbers]
    evaluations = coming_evaluations(config.evaluation, rounds, privacy, numbers)
    epsilon = epsilon_of([*spent, *coming, *evaluations], privacy.delta)
    stops = "" if epsilon <= privacy.epsilon_budget else "; the run will stop before that"
    sampled = (
        f"amplified by secret coins at rate {rounds.participation_rate:g}"
        if rounds.selection == "sampled"
        else "not amplified by sampling"
    )
    lines = [
        privacy.guarantee,
        f"after round {rounds.cap} epsilon is {epsilon:.3g} at delta {privacy.delta:g}, {sampled}; "
        f"epsilon_budget is {privacy.epsilon_budget:g}{stops}",
    ]
    if evaluations:
        lines.append(
            f"{len(evaluations)} evaluations by devices are counted in that, with noise of "
            f"{evaluations[0].noise_multiplier:g} times what one device can count"
        )
    if isinstance(privacy, LocalNoise):
        lines.append(
            "an attempt that misses its quorum costs as much as a round, which is not counted in "
            "that: its devices have sent their updates"
        )
    if isinstance(privacy, CentralNoise | TreeNoise):
        lines += _price_of_attention(config, privacy)
    return lines


def _beside(config: FederationConfig) -> list[str]:
    training, lines = config.training, []
    if training.example_privacy is not None:
        lines.append(training.example_privacy.guarantee(training.local_epochs))
    if config.start_from is not None and config.privacy.guarantees_privacy:
        lines.append(
            f"the run starts from {config.start_from}, which it publishes as it is: nothing here "
            "covers the people whose text it was learned from"
        )
    return lines


def _price_of_attention(config: FederationConfig, privacy: CentralNoise | TreeNoise) -> list[str]:
    rule = config.aggregation
    if not isinstance(rule, AttentiveSettings) or abs(rule.attention_strength) <= CHEAP_ATTENTION:
        return []

    if noises_sums(privacy):
        return [price_line_of_sums(rule.attention_strength)]

    def sensitivity(settings: AggregationSettings) -> float:
        return aggregate_sensitivity(
            settings,
            config.schema.with_roles(Role.SHARED),
            privacy,
            slot_count=fixed_slot_count(config.rounds, privacy),
            adjacency=privacy.adjacency,
        )

    price = sensitivity(rule) / sensitivity(MeanSettings(weighting="equal"))
    return [price_line(rule.attention_strength, price)]
