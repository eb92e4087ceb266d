from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from server.config.plans import make_plan
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.rounds.federation import Federation
from simulation.workers.jobs import TrainerFactory
from simulation.workers.pool import WorkerPool
from simulation.workers.state_shelf import StateShelf
from tests.masked_scene import repeating_trainer

Configured = Callable[..., tuple[SimulationConfig, dict[str, object]]]

MASKED = (
    'privacy={mode="masked", clipping_norm=5.0, noise_multiplier=0.01, delta=1e-3, '
    'epsilon_budget=1e9, coordinator_epsilon_budget=1e9, honest_share=1.0, adjacency="zero-out"}'
)


GROWING = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=2, feedforward_size=8, context_size=16}",
    "growth={target_layer_count=2, stage_count=2, round_count=2}",
)


def parameters_after(
    config: SimulationConfig,
    population: Population,
    *,
    worker_count: int = 1,
    trainer: TrainerFactory | None = repeating_trainer,
    folder: Path | None = None,
) -> torch.Tensor:
    """Return the parameters after two rounds; a growing model has its second stage by then."""
    plan = make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    with WorkerPool(
        plan,
        population.clients,
        worker_count=worker_count,
        trainer=trainer,
        states=None if folder is None else StateShelf(folder),
    ) as pool:
        federation = Federation(config, plan, list(population.clients), pool)
        for _ in range(2):
            federation.run_round()
    return federation.parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("aggregation.attention_strength=-1.0", "privacy.clipping=per-layer"),
        (
            "privacy.adaptive_clipping={count_noise_std=3.0}",
            "aggregation={rule='mean'}",
            "training.example_cap=100",
        ),
        ('personalisation={method="fedper"}', "model.tied=false", "privacy.groups=3"),
        GROWING,
    ],
    ids=["attention", "adaptive", "personal", "growing"],
)
def test_masked_rounds_end_in_the_same_bits_with_one_worker_and_two(
    configured: Configured, population: Population, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config, _ = configured(MASKED, "rounds.quorum=3", *settings)
    keeps = config.personalisation.method == "fedper"

    one, two = (
        parameters_after(
            config,
            population,
            worker_count=count,
            folder=tmp_path / str(count) if keeps else None,
        )
        for count in (1, 2)
    )

    assert torch.equal(one, two)


@pytest.mark.slow
def test_the_devices_of_a_run_draw_their_noise_anew(
    configured: Configured, population: Population
) -> None:
    config, _ = configured(MASKED)

    one, two = (parameters_after(config, population, trainer=None) for _ in range(2))

    assert not torch.equal(one, two)
    # Of z S = 0.05 a round, on a mean of three. A few weights grow what the noise began.
    assert float((one - two).abs().mean()) < 0.1
