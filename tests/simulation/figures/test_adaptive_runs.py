"""Let the clipping norm follow the clients through a whole simulated run."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures, read_metrics
from simulation.population.population import Population
from simulation.runs.runner import run_simulation
from tests.simulation.here import HERE

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]


class KilledError(Exception):
    """Stand in for a kill between two rounds."""


class KillsAfter:
    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def round_finished(self, figures: Figures) -> None:
        self._left -= 1
        if not self._left:
            raise KilledError


def adaptive(configured: Configured, start: float) -> tuple[SimulationConfig, dict[str, Any]]:
    return configured(
        'privacy={mode="none", adaptive_clipping={count_noise_std=0.0}, clipping_norm=1.0}',
        f"privacy.clipping_norm={start}",
        "rounds.cap=6",
    )


def norms(folder: Path) -> list[tuple[float, float]]:
    rows = read_metrics(folder)
    return [
        (float(row["clipping_norm"] or 0), float(row["next_clipping_norm"] or 0)) for row in rows
    ]


def test_a_norm_far_too_large_falls_by_the_step_every_round(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run_simulation(*adaptive(configured, 1e6), population, tmp_path, HERE)

    # Every update fits, so that ln C falls by 0.2 * (1 - 0.5) a round.
    path = norms(tmp_path)
    assert [after for _, after in path] == pytest.approx(
        [1e6 * math.exp(-0.1 * number) for number in range(1, 7)]
    )
    assert [before for before, _ in path[1:]] == [after for _, after in path[:-1]]


def test_a_norm_far_too_small_rises_because_clients_clip_to_it(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run_simulation(*adaptive(configured, 1e-6), population, tmp_path, HERE)

    assert [after for _, after in norms(tmp_path)] == pytest.approx(
        [1e-6 * math.exp(0.1 * number) for number in range(1, 7)]
    )
    # Clients clip to the round's norm, not to the first: the server never has to.
    assert [row["clipped"] for row in read_metrics(tmp_path)] == [0] * 6


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_the_norm_it_had(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    config, tables = adaptive(configured, 0.5)
    run_simulation(config, tables, population, whole, HERE)

    with pytest.raises(KilledError):
        options = HERE._replace(reporter=KillsAfter(3))
        run_simulation(config, tables, population, broken, options)
    run_simulation(config, tables, population, broken, HERE)

    assert norms(broken) == norms(whole)
    assert len({after for _, after in norms(whole)}) > 1
