"""A plugin's rule gives an update or is refused; nothing else reaches the model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.plugins.names import PluginError
from models.vector.schema import Schema, TensorSpec
from server.aggregation.registry import build_rule
from server.aggregation.robust_settings import PluginRule

SCHEMA = Schema((TensorSpec(name="a", shape=(2,), layer="a"),))


class Own:
    """Hold a made-up plugin's rule."""

    least_cohort = 1

    def __init__(self, reduce_rows: Any) -> None:
        self.reduce_rows = reduce_rows

    def tolerated(self, cohort_size: int) -> int:
        return 0


def aggregated(monkeypatch: pytest.MonkeyPatch, reduce_rows: Any) -> Tensor:
    monkeypatch.setattr(PluginRule, "own", property(lambda _: Own(reduce_rows)))
    rule = build_rule(PluginRule(name="own"), SCHEMA, slot_count=2, clipping_norm=None)
    rule.add(0, torch.tensor([1.0, 2.0]), 1)
    rule.add(1, torch.tensor([3.0, 6.0]), 1)
    return rule.result()


def test_the_rules_own_arithmetic_makes_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = aggregated(monkeypatch, lambda rows: rows.max(dim=0).values)

    assert largest.tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    ("reduce_rows", "told"),
    [
        (lambda rows: rows.mean(), r"finite float32 of shape \(2,\)"),
        (lambda rows: rows.double().mean(dim=0), "finite float32"),
        (lambda rows: rows.mean(dim=0) / 0, "finite float32"),
        (lambda rows: [1.0, 2.0], "finite float32"),
        (lambda rows: rows.no_such(), "own of sotto.aggregation raised AttributeError"),
    ],
)
def test_what_is_no_update_is_refused(
    reduce_rows: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PluginError, match=told):
        aggregated(monkeypatch, reduce_rows)
