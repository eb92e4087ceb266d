"""Say at the start of a run what its guarantee comes to, for people.

The coordinator and the simulation print the same lines.
"""

from collections.abc import Sequence

from models.schema import Schema
from privacy.accountant import epsilon_of
from privacy.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.events import PrivacyEvent
from privacy.settings import PrivacySettings
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.guarantee_rules import event_of, fixed_slot_count
from server.round_settings import RoundSettings

CHEAP_ATTENTION = 0.5
"""κ up to which attention costs little."""


def outlook(
    schema: Schema,
    privacy: PrivacySettings,
    aggregation: AggregationSettings,
    rounds: RoundSettings,
    *,
    spent: Sequence[PrivacyEvent] = (),
    first_round: int = 1,
) -> list[str]:
    """Return lines on what the run promises and will have spent; takes a second for a sampled one.

    Args:
        schema: Tensors of the aggregated parameters.
        privacy: Noise mode and clipping.
        aggregation: The rule.
        rounds: How cohorts are drawn, and how often.
        spent: The run's ledger so far.
        first_round: Round that comes next.

    Raises:
        ValueError: If the events do not add up.
    """
    lines = [privacy.guarantee]
    if not isinstance(privacy, LocalNoise | CentralNoise | TreeNoise):
        return lines
    coming = [event_of(number, rounds, privacy) for number in range(first_round, rounds.cap + 1)]
    epsilon = epsilon_of([*spent, *coming], privacy.delta)
    stops = "" if epsilon <= privacy.epsilon_budget else "; the run will stop before that"
    lines.append(
        f"after round {rounds.cap} epsilon is {epsilon:.3g} at delta {privacy.delta:g}, "
        f"{_amplification(rounds)}; epsilon_budget is {privacy.epsilon_budget:g}{stops}"
    )
    if isinstance(privacy, CentralNoise | TreeNoise):
        lines += _price_of_attention(schema, privacy, aggregation, rounds)
    return lines


def _amplification(rounds: RoundSettings) -> str:
    if rounds.selection != "sampled":
        return "with no amplification by sampling"
    return f"amplified by secret coins at rate {rounds.participation_rate:g}"


def _price_of_attention(
    schema: Schema,
    privacy: CentralNoise | TreeNoise,
    aggregation: AggregationSettings,
    rounds: RoundSettings,
) -> list[str]:
    if not isinstance(aggregation, AttentiveSettings):
        return []
    strength = aggregation.attention_strength
    if strength <= CHEAP_ATTENTION:
        return []
    slots = fixed_slot_count(rounds, privacy)

    def sensitivity(rule: AggregationSettings) -> float:
        return aggregate_sensitivity(
            rule, schema, privacy, slot_count=slots, adjacency=privacy.adjacency
        )

    price = sensitivity(aggregation) / sensitivity(MeanSettings(weighting="equal"))
    return [
        f"attention_strength {strength:g} is above {CHEAP_ATTENTION:g}: it makes the noise "
        f"{price:.2f} times that of the equal mean"
    ]
