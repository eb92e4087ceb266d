"""Write a tuned setting as the tables of a federation's file that deploy it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from simulation.tuning.candidate import ADJACENCY, Candidate, Deployment, participation
from simulation.tuning.measuring import Measurement
from simulation.tuning.toml import table_lines

DEADLINE_S = 900.0
"""Seconds a round stays open: long enough for a phone that has just been put to charge."""


def fragment(chosen: Measurement, deployment: Deployment, *, target_epsilon: float) -> str:
    """Return the tables of a federation's file that deploy a measured setting, as TOML.

    The coordinator stops at whichever comes first: the rounds that were tuned for, or the target
    epsilon of the whole run as its budget.

    Raises:
        ValueError: If the run had no noise.
    """
    candidate = chosen.candidate
    if candidate is None:
        raise ValueError("a run without noise has no guarantee to deploy")
    privacy = {
        "mode": candidate.mode,
        "clipping_norm": candidate.clipping_norm,
        "noise_multiplier": candidate.noise_multiplier,
        "delta": deployment.delta,
        "epsilon_budget": float(target_epsilon),
        **dict(_of_mode(candidate, deployment)),
    }
    lines = [
        f"# Tuned for {deployment.population_size} enrolled people and {deployment.rounds} rounds:",
        f"# epsilon {chosen.epsilon:.3g} at delta {deployment.delta:g}, validation perplexity "
        f"{chosen.perplexity:.1f}, top-3 recall {chosen.recall:.1%}.",
        *table_lines("privacy", privacy),
        *table_lines("aggregation", msgspec.to_builtins(candidate.aggregation)),
        *table_lines("rounds", _rounds(candidate, deployment)),
    ]
    return "\n".join(lines) + "\n"


def _of_mode(candidate: Candidate, deployment: Deployment) -> Iterator[tuple[str, Any]]:
    if candidate.mode != "local":
        yield "adjacency", ADJACENCY
    if candidate.noises_sums:
        yield "noise_on", "sums"
    if candidate.mode == "ftrl":
        separation, most = participation(candidate, deployment)
        yield "min_separation", separation
        yield "max_participation", most


# The dictionaries below are TOML tables: their values are of any TOML type.
def _rounds(candidate: Candidate, deployment: Deployment) -> dict[str, Any]:
    """Return who takes part: only ``central`` is amplified, by secret coin flips."""
    common = {"cap": deployment.rounds, "deadline_s": DEADLINE_S}
    if candidate.mode == "central":
        return {
            **common,
            "selection": "sampled",
            "participation_rate": candidate.cohort / deployment.population_size,
            "population_size": deployment.population_size,
            "quorum": 1,
            "close_early": False,
        }
    quorum = max(1, candidate.cohort // 2)
    return {**common, "selection": "drawn", "cohort_size": candidate.cohort, "quorum": quorum}
