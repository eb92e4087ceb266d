import math
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from models.listening.time_warping import warp, warped


def cheapest(costs: Sequence[Sequence[float]]) -> float:
    """Return the least total by trying every path."""

    @cache
    def to(row: int, column: int) -> float:
        if row < 0 or column < 0:
            return math.inf
        before = min(to(row - 1, column - 1), to(row - 1, column), to(row, column - 1))
        return costs[row][column] + (0 if row == column == 0 else before)

    return to(len(costs) - 1, len(costs[0]) - 1)


def test_the_path_goes_round_what_is_dear() -> None:
    # Straight on costs 0 + 9 + 0; by the corner 0 + 1 + 2 + 0.
    costs = torch.tensor([[0.0, 1.0, 9.0], [9.0, 9.0, 2.0], [9.0, 9.0, 0.0]])

    path = warp(costs)

    assert path.first.tolist() == [0, 0, 1, 2]
    assert path.second.tolist() == [0, 1, 2, 2]


def test_of_equal_paths_the_straight_one_is_taken() -> None:
    path = warp(torch.zeros(3, 3))

    assert path.first.tolist() == path.second.tolist() == [0, 1, 2]


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)).flatmap(
        lambda shape: st.lists(
            st.lists(st.integers(0, 9).map(float), min_size=shape[1], max_size=shape[1]),
            min_size=shape[0],
            max_size=shape[0],
        )
    )
)
def test_no_path_is_cheaper_and_it_leads_from_corner_to_corner(costs: list[list[float]]) -> None:
    table = torch.tensor(costs)

    path = warp(table)

    steps = {tuple(pair) for pair in torch.stack(path).diff().T.tolist()}
    assert float(table[path.first, path.second].sum()) == cheapest(costs)
    assert [int(places[0]) for places in path] == [0, 0]
    assert [int(places[-1]) + 1 for places in path] == list(table.shape)
    assert steps <= {(0, 1), (1, 0), (1, 1)}


def test_the_second_sequence_takes_the_speed_of_the_first() -> None:
    first = torch.tensor([[1.0, 5.0, 5.0]])
    second = torch.tensor([[0.5, 1.5, 5.0]])

    path = warp((first.T - second).abs())

    # 1 goes with 0.5 and 1.5, whose mean is 1; both fives go with the five.
    assert_close(warped(second, path), torch.tensor([[1.0, 5.0, 5.0]]))


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (torch.zeros(0, 3), "one pair at least"),
        (torch.zeros(3), "one pair at least"),
        (torch.tensor([[0.0, -1.0]]), ">= 0 and finite"),
        (torch.tensor([[0.0, math.nan]]), ">= 0 and finite"),
    ],
)
def test_costs_that_are_none_are_refused(costs: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        warp(costs)
