"""Write a tuned setting as the tables of a federation's file that deploy it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from simulation.tuning.candidate import (
    ADJACENCY,
    Candidate,
    Deployment,
    buffers,
    masked_quorum,
    participation,
)
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
    if candidate.mode == "masked":
        privacy["coordinator_epsilon_budget"] = float(target_epsilon)
        privacy["honest_share"] = deployment.honest_share
    lines = [
        f"# Tuned for {deployment.population_size} enrolled people and {deployment.rounds} rounds:",
        f"# epsilon {chosen.epsilon:.3g} against readers{_of_coordinator(chosen)} at delta "
        f"{deployment.delta:g}, validation perplexity {chosen.perplexity:.1f}, top-3 recall "
        f"{chosen.recall:.1%}.",
        *table_lines("privacy", privacy),
        *table_lines("aggregation", msgspec.to_builtins(candidate.aggregation)),
        *table_lines("rounds", _rounds(candidate, deployment)),
    ]
    return "\n".join(lines) + "\n"


def _of_coordinator(chosen: Measurement) -> str:
    if chosen.coordinator_epsilon is None:
        return ""
    return f" and {chosen.coordinator_epsilon:.3g} against the coordinator"


def _of_mode(candidate: Candidate, deployment: Deployment) -> Iterator[tuple[str, Any]]:
    if candidate.mode != "local":
        yield "adjacency", ADJACENCY
    if candidate.noises_sums and candidate.mode != "masked":
        yield "noise_on", "sums"
    if candidate.mode == "ftrl":
        separation, most = participation(candidate, deployment)
        yield "min_separation", separation
        yield "max_participation", most
        decays, scales = buffers(candidate, deployment)
        yield "mechanism", "blt"
        yield "buffer_decays", decays
        yield "buffer_scales", scales


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
            # Devices ask how few may come where an empty place is no zero.
            "quorum": max(1, candidate.cohort // 2) if candidate.noises_sums else 1,
            "close_early": False,
        }
    if candidate.mode == "masked":
        # A round that falls short costs the coordinator's budget: ask more than are needed.
        return {
            **common,
            "selection": "first-come",
            "cohort_size": candidate.cohort,
            "over_selection": 1.3,
            "quorum": masked_quorum(candidate),
        }
    quorum = max(1, candidate.cohort // 2)
    return {**common, "selection": "drawn", "cohort_size": candidate.cohort, "quorum": quorum}
