"""Tell people at a run's start, deployed or simulated, what its guarantee comes to."""

import math
from collections.abc import Sequence

from models.vector.schema import Role
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import PrivacyEvent
from privacy.accounting.one_gaussian import gaussian_epsilon
from privacy.accounting.onlookers import AGAINST
from privacy.commands.budget import CHEAP_ATTENTION, price_line
from privacy.commands.sums_in_words import price_line_of_sums
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.plan_events import attempt_event, event_of, fixed_slot_count
from privacy.noise.settings import noises_sums
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.config.evaluation_rules import coming_evaluations
from server.config.federation import FederationConfig


def outlook(
    config: FederationConfig,
    *,
    spent: Sequence[PrivacyEvent] = (),
    first_round: int = 1,
    is_paid: bool = False,
) -> list[str]:
    """Return lines on what the run promises and, after ``spent``, will have spent; takes a while.

    ``is_paid`` says that ``spent`` holds the attempt at ``first_round`` already.

    Raises:
        ValueError: If the events do not add up.
    """
    return [*_of_people(config, spent, first_round, is_paid=is_paid), *_beside(config)]


def promises(config: FederationConfig) -> list[str]:
    """Return what a run promises, without sums: on people, on sentences, on what it starts from."""
    return [config.privacy.guarantee, *_beside(config)]


def _of_people(
    config: FederationConfig, spent: Sequence[PrivacyEvent], first_round: int, *, is_paid: bool
) -> list[str]:
    privacy, rounds = config.privacy, config.rounds
    if not isinstance(privacy, LocalNoise | CentralNoise | TreeNoise | MaskedNoise):
        return [privacy.guarantee]
    # What is still to come for readers; under ``local`` an attempt that was paid for is all of it.
    numbers = range(first_round, rounds.cap + 1)
    unpaid = numbers[1:] if is_paid else numbers
    released = unpaid if isinstance(privacy, LocalNoise) else numbers
    coming = [event_of(number, rounds, privacy) for number in released]
    evaluations = coming_evaluations(config.evaluation, rounds, privacy, numbers)
    epsilon = epsilon_of([*spent, *coming, *evaluations], privacy.delta)
    sampled = (
        f"amplified by secret coins at rate {rounds.participation_rate:g}"
        if rounds.selection == "sampled"
        else "not amplified by sampling"
    )
    onlooker = f" {AGAINST['readers']}" if isinstance(privacy, MaskedNoise) else ""
    lines = [
        privacy.guarantee,
        f"after round {rounds.cap} epsilon{onlooker} is {epsilon:.3g} at delta {privacy.delta:g}, "
        f"{sampled}; epsilon_budget is {_budget(privacy.epsilon_budget, epsilon)}",
    ]
    if evaluations:
        lines.append(
            f"{len(evaluations)} evaluations by devices are counted in that, with noise of "
            f"{evaluations[0].noise_multiplier:g} times what one device can count"
        )
    # What only some modes have to say.
    match privacy:
        case LocalNoise():
            lines.append(
                "an attempt that misses its quorum costs as much as a round, which is not counted "
                "in that: its devices have sent their updates"
            )
        case MaskedNoise():
            lines += _against_coordinator(config, privacy, spent, len(unpaid))
        case CentralNoise() | TreeNoise():
            lines += [*_buffers(config, privacy), *_price_of_attention(config, privacy)]
    return lines


def _against_coordinator(
    config: FederationConfig, privacy: MaskedNoise, spent: Sequence[PrivacyEvent], attempts: int
) -> list[str]:
    """Return what ``attempts`` more bring the coordinator's figure to, and whose noise counts."""
    rounds = config.rounds
    one, least = attempt_event(rounds, privacy), privacy.least_contributors(rounds.quorum)
    coming = [] if one is None else [one] * attempts
    epsilon = epsilon_of([*spent, *coming], privacy.delta, "coordinator")
    honest = privacy.honest_contributors(rounds.quorum)
    alone = gaussian_epsilon(privacy.noise_multiplier / math.sqrt(honest), privacy.delta)
    return [
        f"epsilon {AGAINST['coordinator']} is {epsilon:.3g} by then at delta {privacy.delta:g}, "
        "and more with every attempt that comes to nothing, which costs as much as a round; "
        "coordinator_epsilon_budget is "
        f"{_budget(privacy.coordinator_epsilon_budget, epsilon)}",
        f"both figures count the noise of {honest} of each sum's contributors, who are at least "
        f"{least}",
        "a coordinator that enrolled all other devices of a sum, or joined the helper, would see "
        "one device's update behind its own share of the noise alone: epsilon about "
        f"{alone:.3g} at delta {privacy.delta:g} for each attempt",
    ]


def _budget(most: float, epsilon: float) -> str:
    stops = "" if epsilon <= most else "; the run will stop before that"
    return f"{most:g}{stops}"


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


def _buffers(config: FederationConfig, privacy: CentralNoise | TreeNoise) -> list[str]:
    if isinstance(privacy, CentralNoise) or privacy.buffers is None:
        return []
    held = 8 * len(privacy.buffers[0]) * config.schema.with_roles(Role.SHARED).element_count
    return [
        f"the buffers of its noise take {held / 1e6:,.3g} MB beside the model; after a restart "
        "the first round that closes draws the noise of all rounds before it again"
    ]


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
