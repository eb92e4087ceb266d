"""Refuse what does not go with mode ``masked``, whose coordinator sees sums and no update."""

from privacy.noise.masked_settings import MaskedNoise
from server.aggregation.robust_settings import RobustSettings
from server.aggregation.settings import AggregationSettings, LiteralSettings
from server.config.rounds import RoundSettings


def check_masked_sums(
    privacy: MaskedNoise, aggregation: AggregationSettings, rounds: RoundSettings
) -> None:
    """Check that rule, groups and quorum go with masked sums.

    A robust rule runs over the groups' means, in which all devices weigh the same.

    Raises:
        ValueError: If they do not; names the setting, the reason and the remedy.
    """
    privacy.least_contributors(rounds.quorum)
    if isinstance(aggregation, LiteralSettings):
        raise ValueError(
            'aggregation.rule = "literal" weighs by a softmax over everybody\'s distances, which '
            'no device knows; use "attentive" or "mean" with privacy.mode = "masked"'
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
