"""What a tree of noise costs a person who takes part several times."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.tree import (
    epsilon_of_rho,
    tree_prefix_variances,
    tree_rho,
    tree_sensitivity_squared,
)


def by_trying_every_pattern(trees: list[int], min_separation: int, max_participation: int) -> int:
    """Sum c^2 over all complete nodes, for every set of leaves that keeps the rules."""
    nodes, first = [], 0
    for leaves in trees:
        for height in range(leaves.bit_length()):
            nodes += [
                range(first + (place << height), first + ((place + 1) << height))
                for place in range(leaves >> height)
            ]
        first += leaves
    patterns = (
        pattern
        for count in range(1, max_participation + 1)
        for pattern in itertools.combinations(range(first), count)
        if all(later - leaf >= min_separation for leaf, later in itertools.pairwise(pattern))
    )
    return max(
        sum(sum(leaf in node for leaf in pattern) ** 2 for node in nodes) for pattern in patterns
    )


def test_gboards_published_figures_are_reproduced() -> None:
    # Xu et al. 2023: noise multiplier 7, 2,000 rounds, separation 313, participation 6,
    # delta 1e-10: rho = 0.81 and epsilon = 8.90.
    rho = tree_rho(7.0, [2000], min_separation=313, max_participation=6)

    assert round(rho, 2) == 0.81
    assert round(epsilon_of_rho(rho, 1e-10), 2) == 8.90


def test_one_participation_costs_one_for_each_node_above_the_leaf() -> None:
    # 8 leaves: the leaf itself and 3 nodes above it. Kairouz et al., Theorem for one epoch.
    assert tree_sensitivity_squared([8], min_separation=8, max_participation=1) == 4


def test_every_round_of_four_leaves() -> None:
    # The root holds 4, two nodes 2 each, four leaves 1 each: 16 + 2*4 + 4.
    assert tree_sensitivity_squared([4], min_separation=1, max_participation=4) == 28


def test_a_model_holds_the_draws_of_its_digits_and_those_of_the_trees_before() -> None:
    assert tree_prefix_variances([7]) == [1, 1, 2, 1, 2, 2, 3]
    # 3 = 2 + 1 leaves two draws in the model when the next tree begins.
    assert tree_prefix_variances([3, 2]) == [1, 1, 2, 3, 3]


def test_a_restart_parts_what_one_tree_would_join() -> None:
    # Two trees of 2: each has a node with 2 and two leaves, 2 * (4 + 2).
    assert tree_sensitivity_squared([2, 2], min_separation=1, max_participation=4) == 12


def test_only_complete_nodes_count() -> None:
    # 3 leaves are a subtree of 2 (4 + 1 + 1) and a single leaf (1).
    assert tree_sensitivity_squared([3], min_separation=1, max_participation=3) == 7


@settings(max_examples=150, deadline=None)
@given(
    trees=st.lists(st.integers(1, 7), min_size=1, max_size=2),
    min_separation=st.integers(1, 6),
    max_participation=st.integers(1, 5),
)
def test_no_pattern_of_participation_costs_more(
    trees: list[int], min_separation: int, max_participation: int
) -> None:
    assert tree_sensitivity_squared(
        trees, min_separation=min_separation, max_participation=max_participation
    ) == by_trying_every_pattern(trees, min_separation, max_participation)


@settings(max_examples=100, deadline=None)
@given(
    leaves=st.integers(1, 300),
    min_separation=st.integers(1, 100),
    max_participation=st.integers(1, 8),
)
def test_more_rounds_or_more_participation_never_cost_less(
    leaves: int, min_separation: int, max_participation: int
) -> None:
    cost = tree_sensitivity_squared(
        [leaves], min_separation=min_separation, max_participation=max_participation
    )

    assert cost <= tree_sensitivity_squared(
        [leaves + 1], min_separation=min_separation, max_participation=max_participation
    )
    assert cost <= tree_sensitivity_squared(
        [leaves], min_separation=min_separation, max_participation=max_participation + 1
    )
    assert cost >= tree_sensitivity_squared(
        [leaves], min_separation=min_separation + 1, max_participation=max_participation
    )


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-6), (0.806, 1e-10), (2.0, 1e-5), (50.0, 0.1)])
def test_epsilon_of_rho_is_the_least_over_a_fine_grid(rho: float, delta: float) -> None:
    # Canonne et al., Proposition 12, solved for epsilon at each alpha of a grid.
    grid = [1 + math.exp(step / 500) for step in range(-5000, 5000)]
    expected = min(
        a * rho + (math.log(1 / delta) + (a - 1) * math.log(1 - 1 / a) - math.log(a)) / (a - 1)
        for a in grid
    )

    assert epsilon_of_rho(rho, delta) == pytest.approx(max(0.0, expected), abs=1e-4)


def test_epsilon_of_rho_is_tighter_than_bun_and_steinke() -> None:
    # Bun and Steinke 2016, Proposition 1.3: rho + 2 sqrt(rho ln(1/delta)).
    assert epsilon_of_rho(0.81, 1e-10) < 0.81 + 2 * math.sqrt(0.81 * math.log(1e10))


@pytest.mark.parametrize(
    ("separation", "participation", "name"),
    [(0, 1, "min_separation"), (1, 0, "max_participation"), (None, 1, "min_separation")],
)
def test_a_missing_limit_is_refused_by_name(separation: int, participation: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        tree_sensitivity_squared([8], min_separation=separation, max_participation=participation)
