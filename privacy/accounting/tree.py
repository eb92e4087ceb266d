"""The account of a binary tree of noise in which one person takes part several times.

A person who contributes to c leaves below a node moves that node's sum by at most c times the
sensitivity of one leaf, so all released nodes together move by the square root of the sum of c^2
over the nodes. That is one Gaussian mechanism, whatever order people come in: no sampling is
assumed. The maximum is over every pattern that the plan allows: at most ``max_participation``
rounds, any two at least ``min_separation`` apart. Neighbours are those of the leaf's sensitivity.

Only complete nodes count: a tree of 2,000 leaves releases subtrees of 1024, 512, 256, 128, 64 and
16 leaves and what lies in them. A restart begins a new tree; the limits on people go on.

References:
    Kairouz et al., "Practical and Private (Deep) Learning without Sampling or Shuffling",
        ICML 2021, arXiv:2103.00039 (Appendix D).
    Xu et al., "Federated Learning of Gboard Language Models with Differential Privacy",
        ACL 2023, arXiv:2305.18465 (separation and participation; the published figures).
    Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
        arXiv:2004.00010 (Proposition 12: from zCDP to epsilon and delta).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from privacy.accounting.checked_values import check_count, check_delta, check_noise_multiplier

_Outcome = tuple[int, int]
"""A sum of squares, and the last leaf taken part in."""


def tree_sensitivity_squared(
    tree_leaves: Sequence[int], *, min_separation: int, max_participation: int
) -> int:
    """Return the largest sum of squared participation counts over all nodes of some trees.

    This is the squared L2 sensitivity of all released nodes, in units of one leaf's sensitivity.

    Args:
        tree_leaves: Leaves (rounds) of each tree in the order of time; several after restarts.
        min_separation: Least distance in rounds of two participations of one person; 1 is
            every round.
        max_participation: Most participations of one person over all trees.

    Raises:
        ValueError: If a number is no whole number above 0, or ``tree_leaves`` is empty.
    """
    check_count(min_separation, "min_separation")
    check_count(max_participation, "max_participation")
    check_count(len(tree_leaves), "number of trees")
    # For each number of participations so far: what they can have cost, and when the last was.
    reached: dict[int, list[_Outcome]] = {0: [(0, -min_separation)]}
    for first_leaf, height in _complete_subtrees(tree_leaves):
        reached = _through_subtree(reached, first_leaf, height, min_separation, max_participation)
    return max(value for outcomes in reached.values() for value, _ in outcomes)


def tree_rho(
    noise_multiplier: float,
    tree_leaves: Sequence[int],
    *,
    min_separation: int,
    max_participation: int,
) -> float:
    """Return ρ of zero-concentrated differential privacy: squared sensitivity over 2 z^2.

    z is each node's noise standard deviation over one leaf's sensitivity.
    """
    check_noise_multiplier(noise_multiplier)
    squared = tree_sensitivity_squared(
        tree_leaves, min_separation=min_separation, max_participation=max_participation
    )
    return squared / (2 * noise_multiplier**2)


def tree_prefix_variances(tree_leaves: Sequence[int]) -> list[int]:
    """Return the variance of the noise in each model, in z² of a node: the subtrees that cover it.

    A restart leaves the noise of the trees before in the model.
    """
    before, variances = 0, []
    for leaves in tree_leaves:
        variances += [before + leaf.bit_count() for leaf in range(1, leaves + 1)]
        before = variances[-1]
    return variances


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Return the least ε that ρ-zCDP gives at δ (Canonne et al., Proposition 12).

    δ = inf over α > 1 of e^((α-1)(αρ-ε)) / (α-1) * (1-1/α)^α; solved for ε and minimised over
    ln(α-1), along which it falls and then rises.
    """
    from scipy.optimize import minimize_scalar

    check_noise_multiplier(rho, "rho")
    check_delta(delta)

    def epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α - 1
        slack = -math.log(delta) - math.log1p(excess)
        return (1 + excess) * rho + slack / excess - math.log1p(1 / excess)

    # The best α is near 1 + sqrt(ln(1/δ)/ρ); every α gives a valid bound.
    centre = 0.5 * math.log(-math.log(delta) / rho)
    found = minimize_scalar(epsilon, bounds=(centre - 5, centre + 5), method="bounded")
    return max(0.0, float(found.fun))


def _complete_subtrees(tree_leaves: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first leaf (over all trees) and the height of each largest complete subtree."""
    first_leaf = 0
    for leaves in tree_leaves:
        check_count(leaves, "leaves of a tree")
        for height in range(leaves.bit_length() - 1, -1, -1):
            if leaves >> height & 1:
                yield first_leaf, height
                first_leaf += 1 << height


def _through_subtree(
    reached: dict[int, list[_Outcome]],
    first_leaf: int,
    height: int,
    min_separation: int,
    max_participation: int,
) -> dict[int, list[_Outcome]]:
    following: dict[int, list[_Outcome]] = {}
    for before, outcomes in reached.items():
        for value, last in outcomes:
            start = max(0, last + min_separation - first_leaf)
            most = min(max_participation - before, _capacity(height, start, min_separation))
            following.setdefault(before, []).append((value, last))
            for count in range(1, most + 1):
                following.setdefault(before + count, []).extend(
                    (value + more, first_leaf + where)
                    for more, where in _in_subtree(height, count, start, min_separation)
                )
    return {count: _best(outcomes) for count, outcomes in following.items()}


@lru_cache(maxsize=1 << 20)
def _in_subtree(height: int, count: int, start: int, min_separation: int) -> tuple[_Outcome, ...]:
    """Return the undominated outcomes of ``count`` leaves from ``start`` on in one subtree."""
    if count == 0:
        return ((0, start - min_separation),)
    if count > _capacity(height, start, min_separation):
        return ()
    if count == 1:
        # In each of the nodes above it once; as early as it can be.
        return ((height + 1, start),)
    half = 1 << height - 1
    found: list[_Outcome] = []
    for left in range(count + 1):
        for value, last in _in_subtree(height - 1, left, start, min_separation):
            if left == count:
                found.append((value, last))
                continue
            right_start = max(0, start - half, last + min_separation - half)
            right = _in_subtree(height - 1, count - left, right_start, min_separation)
            found.extend((value + more, half + where) for more, where in right)
    return tuple(_best([(value + count**2, last) for value, last in found]))


def _capacity(height: int, start: int, min_separation: int) -> int:
    """Return how many leaves of a subtree, from ``start`` on, one person can be in."""
    return -(-max(0, (1 << height) - start) // min_separation)


def _best(outcomes: list[_Outcome]) -> list[_Outcome]:
    """Return the outcomes of which no other costs as much and ends as early."""
    kept: list[_Outcome] = []
    for value, last in sorted(set(outcomes), key=lambda outcome: (-outcome[0], outcome[1])):
        if not kept or last < kept[-1][1]:
            kept.append((value, last))
    return kept
