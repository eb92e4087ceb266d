"""Answers of ``sotto-privacy`` about mode ``ftrl``: trees, and noise through buffers.

All raise ValueError if a value is missing or out of its range.
"""

import math
from typing import NamedTuple

from privacy.accounting.buffer_design import design_buffers
from privacy.accounting.calibration import correlated_noise_multiplier_for
from privacy.accounting.checked_values import check_count, check_noise_multiplier
from privacy.accounting.events import BufferedRelease, TreeRelease
from privacy.accounting.tally import Tally
from privacy.accounting.toeplitz import buffered_prefix_variances, buffered_sensitivity_squared
from privacy.accounting.tree import tree_prefix_variances, tree_sensitivity_squared
from privacy.commands.answer import Answer, Figure
from privacy.commands.budget_flags import BudgetRun, Epsilon, Noise


class _Limits(NamedTuple):
    """The rounds of a run, and how often and how far apart one person takes part."""

    rounds: int
    min_separation: int
    max_participation: int


def tally_of_flags(asked: Epsilon) -> Tally:
    """Return what rounds of correlated noise release, whoever takes part when."""
    z, limits, total = check_noise_multiplier(asked.noise_multiplier), _limits(asked), Tally()
    if asked.mechanism == "blt":
        decays, scales = design_buffers(*limits)
        release = BufferedRelease(
            noise_multiplier=z,
            adjacency="zero-out",
            min_separation=limits.min_separation,
            max_participation=limits.max_participation,
            buffer_decays=decays,
            buffer_scales=scales,
        )
        return total.plus(release, limits.rounds)
    for number, leaves in enumerate(_tree_leaves(asked)):
        leaf = TreeRelease(
            noise_multiplier=z,
            adjacency="zero-out",
            min_separation=limits.min_separation,
            max_participation=limits.max_participation,
            tree_number=number,
        )
        total = total.plus(leaf, leaves)
    return total


def least_noise(asked: Noise, target_epsilon: float, delta: float) -> tuple[float, Answer]:
    """Return the least z of each draw within ε at δ, and what a federation's file needs for it."""
    limits, leaves = _limits(asked), _tree_leaves(asked)
    squared = tree_sensitivity_squared(
        leaves,
        min_separation=limits.min_separation,
        max_participation=limits.max_participation,
    )
    of_tree = correlated_noise_multiplier_for(target_epsilon, delta, squared)
    in_tree = of_tree * math.sqrt(max(tree_prefix_variances(leaves)))
    figures: dict[str, Figure] = {
        "mechanism": asked.mechanism or "tree",
        "min_separation": limits.min_separation,
        "max_participation": limits.max_participation,
        "restart_rounds": asked.restart_rounds,
    }
    if asked.mechanism != "blt":
        lines = [
            f"the noisiest model holds {in_tree:.4g} times the sensitivity of the aggregate",
            "--mechanism blt leaves less in it, and takes memory beside the model",
        ]
        return of_tree, Answer(figures | {"model_noise": in_tree}, lines)
    decays, scales = design_buffers(*limits)
    z = correlated_noise_multiplier_for(
        target_epsilon, delta, buffered_sensitivity_squared(decays, scales, *limits)
    )
    in_model = z * math.sqrt(buffered_prefix_variances(decays, scales, limits.rounds)[-1])
    lines = [
        f"the last model holds {in_model:.4g} times the sensitivity of the aggregate, "
        f"{in_model / in_tree:.2g} of what a tree leaves in its noisiest",
        f"the coordinator holds {8 * len(decays)} bytes a parameter for it; under [privacy] write:",
        'mechanism = "blt"',
        f"buffer_decays = {list(decays)}",
        f"buffer_scales = {list(scales)}",
    ]
    figures |= {"model_noise": in_model, "model_noise_of_tree": in_tree}
    return z, Answer(
        figures | {"buffer_decays": list(decays), "buffer_scales": list(scales)}, lines
    )


def _limits(run: BudgetRun) -> _Limits:
    return _Limits(
        check_count(run.rounds, "rounds"),
        check_count(run.min_separation, "min_separation"),
        check_count(run.max_participation, "max_participation"),
    )


def _tree_leaves(run: BudgetRun) -> list[int]:
    """Return the rounds of each tree in the order of time."""
    length = rounds = check_count(run.rounds, "rounds")
    if run.restart_rounds is not None:
        length = check_count(run.restart_rounds, "restart_rounds")
    return [min(length, rounds - first) for first in range(0, rounds, length)]
