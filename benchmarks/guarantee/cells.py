"""Say which crowds are promised which epsilon, and by how much noise.

A cell is a deployment: so many enrolled people, a part of them drawn by secret coins in every
round, and a noise multiplier z. z is the least multiple of 0.01 whose whole run stays within the
budget, lost places included; ``promise`` counts its epsilon, and the tests hold z to it.
"""

from dataclasses import dataclass
from functools import cache

from models.vector.schema import SENT, Schema
from server.aggregation.settings import AttentiveSettings
from simulation.config.simulation import SimulationConfig, config_from, read_tables
from simulation.tuning.candidate import Candidate, Deployment, Promise, promise_of
from simulation.tuning.crowd import usual_delta

PRESET = "keyboard-central"
ROUNDS = 10
COHORTS = {10_000: 1_000, 100_000: 5_000}
"""People whom a round expects, by population."""

_MULTIPLIERS = {
    (10_000, 1.0): 1.62,
    (10_000, 2.0): 1.12,
    (10_000, 8.0): 0.58,
    (100_000, 1.0): 1.31,
    (100_000, 2.0): 0.98,
    (100_000, 8.0): 0.55,
}


@dataclass(frozen=True)
class Cell:
    """A deployment.

    Attributes:
        population_size: N, enrolled people.
        epsilon: The budget of the whole run.
        noise_multiplier: z.
    """

    population_size: int
    epsilon: float
    noise_multiplier: float

    @property
    def cohort(self) -> int:
        """Return the people whom a round expects, N q."""
        return COHORTS[self.population_size]

    @property
    def deployment(self) -> Deployment:
        """Return what is promised to whom: δ is a little below 1 / N."""
        return Deployment(
            population_size=self.population_size,
            rounds=ROUNDS,
            delta=usual_delta(self.population_size),
        )


CELLS = tuple(Cell(people, budget, z) for (people, budget), z in _MULTIPLIERS.items())


def cell_of(population_size: int, epsilon: float) -> Cell:
    """Return the cell of a population and a budget."""
    return Cell(population_size, epsilon, _MULTIPLIERS[population_size, epsilon])


@cache
def preset() -> SimulationConfig:
    """Return the settings that every cell deploys."""
    return config_from(read_tables(PRESET), PRESET)


def schema() -> Schema:
    """Return the tensors that a device sends."""
    return preset().schema.with_roles(*SENT)


def candidate(cell: Cell) -> Candidate:
    """Return the preset with a cell's cohort and noise, as the tuner tries it.

    Raises:
        TypeError: If the preset does not weigh by attention, or clips nothing.
    """
    config = preset()
    rule, clipping_norm = config.aggregation, config.privacy.clipping_norm
    if not isinstance(rule, AttentiveSettings) or clipping_norm is None:
        raise TypeError(f"{PRESET} must weigh by attention and clip, got {rule}, {clipping_norm}")
    return Candidate(
        mode="central",
        rule="attentive",
        noise_multiplier=cell.noise_multiplier,
        clipping_norm=clipping_norm,
        attention_strength=rule.attention_strength,
        cohort=cell.cohort,
        server_step_size=rule.server_step_size,
    )


@cache
def promise(cell: Cell) -> Promise:
    """Return what a cell promises, counted by the accountant, and its noise on the mean."""
    return promise_of(candidate(cell), cell.deployment, schema())
