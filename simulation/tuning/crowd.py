"""Find how many people it takes until privacy costs almost nothing.

A model feels the noise on the mean, which falls as the cohort grows, though the multiplier z rises
with the sampling rate. Trials show how much noise a setting bears. The rest is arithmetic, and an
extrapolation: it assumes that more people of the same kind would not change the mean.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from models.vector.schema import Schema
from privacy.accounting.calibration import noise_multiplier_for
from simulation.tuning.candidate import Candidate, Deployment, promise_of
from simulation.tuning.measuring import Measurement

TOLERATED_LOSS = 0.01
"""Top-3 recall that may be lost: one point of a hundred."""

_POPULATIONS = tuple(step * 10**power for power in range(2, 9) for step in (1, 2, 5))
_SHOWN_BEYOND = (1, 2, 5, 10, 100)
_DELTA_EXPONENT = -1.1


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """A population and the smallest sufficient cohort in it.

    Attributes:
        population_size: N, enrolled people.
        cohort: People whom a round expects.
        noise_multiplier: z that keeps the run within its target epsilon.
        noise_std: Noise on the aggregate, in parameter units.
        tolerated_std: Largest noise that was measured to cost at most ``TOLERATED_LOSS``.
    """

    population_size: int
    cohort: int
    noise_multiplier: float
    delta: float
    noise_std: float
    tolerated_std: float


def least_crowds(
    measurements: Sequence[Measurement],
    references: Sequence[Measurement],
    *,
    rounds: int,
    target_epsilon: float,
    schema: Schema,
) -> list[Crowd]:
    """Return the smallest sufficient population, and some larger ones, each with its cohort.

    They follow from the trials of mode ``central``, for ``rounds`` T and ε of the whole run. There
    are none if no trial lost at most ``TOLERATED_LOSS`` of recall, every run without noise
    diverged, or even 500 million people, the largest population considered, do not suffice.
    """
    bearing = _most_bearing(measurements, references)
    if bearing is None or bearing.candidate is None:
        return []

    def crowd(population: int, cohort: int) -> Crowd:
        return _crowd(
            bearing, population, cohort, rounds=rounds, target=target_epsilon, schema=schema
        )

    def is_enough(population: int, cohort: int) -> bool:
        found = crowd(population, cohort)
        return found.noise_std <= found.tolerated_std

    # With everybody in every round the noise on the mean is least: if that is too much, all is.
    first = next((size for size in _POPULATIONS if is_enough(size, size)), None)
    if first is None:
        return []
    return [
        crowd(size, _least_cohort(size, partial(is_enough, size)))
        for size in (first * times for times in _SHOWN_BEYOND)
    ]


def markdown(crowds: Sequence[Crowd], *, target_epsilon: float, rounds: int) -> str:
    """Return the table of populations, or the sentence that says why there is none."""
    title = (
        f"Least cohort at which top-3 recall loses at most one point at epsilon "
        f"{target_epsilon:g} over {rounds} rounds (extrapolated from the clients at hand):"
    )
    if not crowds:
        return (
            f"{title} none. No trial kept its recall, or no population considered is enough; "
            "search a smaller noise_multiplier or a larger --simulated-cohort.\n"
        )
    lines = [title, "", "| population | cohort | q | z | δ | noise std |", "| --- " * 6 + "|"]
    lines += [
        f"| {one.population_size:,} | {one.cohort:,} | {one.cohort / one.population_size:.3g} "
        f"| {one.noise_multiplier:.3g} | {one.delta:.1g} | {one.noise_std:.2g} |"
        for one in crowds
    ]
    return "\n".join(lines) + "\n"


def usual_delta(population_size: int) -> float:
    """Return N^-1.1, a little below the 1 / N that no guarantee may reach."""
    return math.pow(max(population_size, 2), _DELTA_EXPONENT)


def _most_bearing(
    measurements: Sequence[Measurement], references: Sequence[Measurement]
) -> Measurement | None:
    """Return the trial with the most noise for its clip among those that lost little."""
    known = [one.recall for one in references if math.isfinite(one.perplexity)]
    best = max(known, default=math.nan)
    kept = [
        one
        for one in measurements
        if one.candidate is not None
        and one.candidate.mode == "central"
        and one.recall >= best - TOLERATED_LOSS
    ]
    return max(kept, key=lambda one: one.noise_std / _reach(one.candidate), default=None)


def _reach(candidate: Candidate | None) -> float:
    if candidate is None:
        raise ValueError("a run without noise bears none")
    return candidate.clipping_norm * math.exp(abs(candidate.attention_strength))


def _crowd(
    bearing: Measurement,
    population: int,
    cohort: int,
    *,
    rounds: int,
    target: float,
    schema: Schema,
) -> Crowd:
    if bearing.candidate is None:
        raise ValueError("a run without noise bears none")
    delta = usual_delta(population)
    z = noise_multiplier_for(target, delta, rounds, cohort / population)
    candidate = msgspec.structs.replace(bearing.candidate, noise_multiplier=z, cohort=cohort)
    deployment = Deployment(population_size=population, rounds=rounds, delta=delta)
    return Crowd(
        population_size=population,
        cohort=cohort,
        noise_multiplier=z,
        delta=delta,
        noise_std=promise_of(candidate, deployment, schema).noise_std,
        tolerated_std=bearing.noise_std,
    )


def _least_cohort(population: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest cohort considered that is enough; the whole population is."""
    cohorts = [size for size in (10, 20, 50, *_POPULATIONS) if size < population]
    # Less noise with every larger cohort, so the first that is enough is found by halving.
    index = bisect_left(cohorts, x=True, key=is_enough)
    return cohorts[index] if index < len(cohorts) else population
