"""Merge the rules of neighbouring slot ranges along a fixed tree."""

from collections.abc import Sequence
from typing import TypeVar

from server.aggregation.rule import AggregationRule

RuleT = TypeVar("RuleT", bound=AggregationRule)


def merge_shards(rules: Sequence[RuleT]) -> RuleT:
    """Merge neighbours in pairs, then pairs of pairs, into the first rule.

    The tree depends on the number of shards alone, so a round that is closed again in as many
    shards gives the same bits.

    Args:
        rules: One for each slot range, in slot order; the first of each pair is changed.

    Raises:
        ValueError: If there are none, or two neighbours do not merge.
    """
    if not rules:
        raise ValueError("merge_shards needs at least one rule, got none")
    level = list(rules)
    while len(level) > 1:
        for left, right in zip(level[::2], level[1::2], strict=False):
            left.merge(right)
        level = level[::2]
    return level[0]
