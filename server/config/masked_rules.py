"""Refuse what does not go with mode ``masked``, whose coordinator sees sums and no update."""

from privacy.noise.masked_settings import LONGEST_ROUND_S, MaskedNoise
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.settings import AggregationSettings, LiteralSettings, MeanSettings
from server.config.rounds import RoundSettings

_NO_CAP = 1_000_000  # What training.example_cap is where nobody set it.


def check_masked_sums(
    privacy: MaskedNoise,
    aggregation: AggregationSettings,
    rounds: RoundSettings,
    *,
    example_cap: int,
) -> None:
    """Check that rule, groups, quorum, deadline and cap go with masked sums.

    A robust rule runs over the groups' means, in which all devices weigh the same.

    Raises:
        ValueError: If they do not; names the setting, the reason and the remedy.
    """
    privacy.least_contributors(rounds.quorum)
    if rounds.deadline_s > LONGEST_ROUND_S:
        raise ValueError(
            f"rounds.deadline_s must be <= {LONGEST_ROUND_S:.0f}, a week, with privacy.mode = "
            f'"masked", got {rounds.deadline_s:g}: the helper unmasks no later one'
        )
    if isinstance(aggregation, LiteralSettings):
        raise ValueError(
            'aggregation.rule = "literal" weighs by a softmax over everybody\'s distances, which '
            'no device knows; use "attentive" or "mean" with privacy.mode = "masked"'
        )
    by_examples = isinstance(aggregation, MeanSettings) and aggregation.weighting == "examples"
    if by_examples and example_cap >= _NO_CAP:
        raise ValueError(
            f"training.example_cap must be below {_NO_CAP:,} for aggregation.weighting = "
            f'"examples" with privacy.mode = "masked", got {example_cap:,}: a device weighs its '
            "count over the cap, and nobody would weigh more than the noise; set it to what an "
            'eager person has, or weighting = "equal"'
        )
    if not isinstance(aggregation, RobustSettings):
        return
    name = aggregation.__struct_config__.tag
    if privacy.groups < aggregation.least_cohort:
        raise ValueError(
            f'privacy.groups must be >= {aggregation.least_cohort} for aggregation.rule = "{name}" '
            f'with privacy.mode = "masked", got {privacy.groups}: it compares sums of groups, '
            "since nobody opens an update"
        )
