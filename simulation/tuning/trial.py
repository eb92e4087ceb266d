"""Say how to try a candidate with the clients at hand.

Noise is added to a mean, so a cohort of thousands hardly feels what destroys a cohort of ten. A
trial therefore adds the deployment's noise, ``Promise.noise_std``, to the mean of the few clients
at hand. Where the cohorts differ, the result is an extrapolation: it assumes that more clients of
the same kind would not change the mean.
"""

import math
from typing import Any

import msgspec

from models.vector.schema import Schema
from simulation.tuning.candidate import (
    ADJACENCY,
    Candidate,
    Deployment,
    Promise,
    buffers,
    sensitivity_of,
)

# A trial promises nothing to anybody: its people are test data.
_PROMISES_NOTHING = {"adjacency": ADJACENCY, "delta": 0.1, "epsilon_budget": 1e12}


# TOML tables hold values of any TOML type.
def trial_tables(
    tables: dict[str, Any],
    candidate: Candidate,
    promise: Promise,
    *,
    deployment: Deployment,
    cohort_at_hand: int,
    schema: Schema,
) -> dict[str, Any]:
    """Return the configuration that tries a candidate with the clients at hand.

    Draws need not be secret here and are seeded, so that seeds can be compared. ``central`` is one
    draw on the server and ``local`` one a client, of the deployment's size; ``ftrl`` is tried as
    itself, since its noise is correlated over the rounds. Noise on sums is tried as itself too, for
    its share of a layer follows from the weights: with as much less of it as there are fewer
    clients, both sums have the relative noise that they would have in the deployment. So is
    ``masked``, with one draw of the server for the sum of all shares.
    """
    step = candidate.server_step_size * promise.fill
    aggregation = msgspec.to_builtins(
        msgspec.structs.replace(candidate.aggregation, server_step_size=step)
    )
    privacy: dict[str, Any] = {"clipping_norm": candidate.clipping_norm}
    match candidate.mode:
        case "central" if candidate.noises_sums:
            privacy |= _summed_tables(candidate, cohort_at_hand)
            tables = _with_places(tables, cohort_at_hand)
        case "central":
            # That mode adds its draw after the step: scaled here as the step would.
            magnitude = candidate.server_step_size * promise.noise_std
            privacy |= {"mode": "paper-server", "randomisation_magnitude": magnitude}
        case "local":
            # One client's draw, so that the mean over the clients at hand has the right size.
            magnitude = promise.noise_std / promise.fill * math.sqrt(cohort_at_hand)
            privacy |= {"mode": "paper", "randomisation_magnitude": magnitude}
        case "ftrl":
            privacy |= _buffer_tables(candidate, promise, deployment, cohort_at_hand, schema)
            tables = _with_places(tables, cohort_at_hand)
        case "masked":
            multiplier = _multiplier_of_shares(candidate, promise, cohort_at_hand, schema)
            privacy |= _on_sums(multiplier)
            tables = _with_places(tables, cohort_at_hand)
    return {**tables, "privacy": privacy, "aggregation": aggregation}


def _buffer_tables(
    candidate: Candidate,
    promise: Promise,
    deployment: Deployment,
    cohort_at_hand: int,
    schema: Schema,
) -> dict[str, Any]:
    """Return the mode's settings with the multiplier that gives the deployment's noise here."""
    if candidate.noises_sums:
        of_mode = _summed_tables(candidate, cohort_at_hand)
    else:
        here = sensitivity_of(candidate, schema, cohort_at_hand)
        of_mode = {"noise_multiplier": promise.noise_std / here, **_PROMISES_NOTHING}
    decays, scales = buffers(candidate, deployment)
    return {
        **of_mode,
        "mode": "ftrl",
        "mechanism": "blt",
        "buffer_decays": list(decays),
        "buffer_scales": list(scales),
        "min_separation": 1,
        "max_participation": 1_000_000,
    }


def _multiplier_of_shares(
    candidate: Candidate, promise: Promise, cohort_at_hand: int, schema: Schema
) -> float:
    """Return the multiplier on the sums at hand that divides to the noise of all shares."""
    return promise.noise_std * cohort_at_hand / sensitivity_of(candidate, schema, cohort_at_hand)


def _summed_tables(candidate: Candidate, cohort_at_hand: int) -> dict[str, Any]:
    """Return settings under which few clients' sums have the relative noise of the deployment's."""
    return _on_sums(candidate.noise_multiplier * cohort_at_hand / candidate.cohort)


def _on_sums(multiplier: float) -> dict[str, Any]:
    on_sums = {"mode": "central", "noise_multiplier": multiplier, "noise_on": "sums"}
    return {**on_sums, **_PROMISES_NOTHING}


def _with_places(tables: dict[str, Any], cohort_at_hand: int) -> dict[str, Any]:
    """Return the tables with as many places as clients at hand: a guarantee fixes their number."""
    rounds = {**tables["rounds"], "cohort_size": cohort_at_hand}
    rounds.pop("participation_rate", None)
    if rounds.pop("population_size", None) is not None:
        rounds["selection"] = "drawn"  # Places of secret coins are more than those at hand.
    return {**tables, "rounds": rounds}
