"""A run may start from a model learned before, and leave parts of it as they were."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.networks.flat_parameters import initial_parameters
from models.plan.release_record import ReleaseError
from models.settings.model import schema_of
from server.config.plans import make_plan
from server.releases.files import read_release
from server.releases.starting_model import StartingModelError, starting_parameters
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
SAMPLED = (
    'privacy={mode="central",clipping_norm=1.0,noise_multiplier=1.0,delta=1e-2,'
    'epsilon_budget=1e3,adjacency="zero-out"}',
    'rounds={cap=2,selection="sampled",participation_rate=0.5,population_size=6,quorum=1,'
    "deadline_s=60.0,close_early=false}",
)


def run(
    configured: Configured, population: Population, folder: Path, *settings: str
) -> torch.Tensor:
    """Run to the end and return the last model."""
    config, tables = configured(*settings)
    run_simulation(config, tables, population, folder, RunOptions())
    return torch.tensor(read_release(folder / "releases" / "latest").parameters)


def started(config: SimulationConfig, population: Population) -> torch.Tensor:
    return starting_parameters(
        config, make_plan(config, "0" * 32, vocabulary=population.vocabulary)
    )


def test_a_run_starts_where_another_ended(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    ended = run(configured, population, tmp_path / "public", "rounds.cap=1")

    config, _ = configured(f'start_from="{tmp_path}/public/releases/latest"')

    assert torch.equal(started(config, population), ended)
    drawn, _ = configured()
    assert torch.equal(started(drawn, population), initial_parameters(drawn.model, drawn.seed))


@pytest.mark.slow
def test_frozen_tensors_stay_under_noise_and_all_others_move(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    ended = run(configured, population, tmp_path / "public", "rounds.cap=1")

    noised = run(
        configured,
        population,
        tmp_path / "private",
        f'start_from="{tmp_path}/public/releases/latest"',
        'training.frozen=["embedding"]',
        *SAMPLED,
    )

    schema = schema_of(configured()[0].model)
    moved = {
        name: not torch.equal(noised[part], ended[part]) for name, part in schema.slices.items()
    }
    assert moved == {name: name != "embedding.weight" for name in schema.slices}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["model.hidden_size=4"], r"embedding\.weight of shape \(50, 4\)"),
        (["model.tied=false"], r"output\.weight of shape \(50, 8\), but .* has none"),
    ],
)
def test_a_model_of_another_shape_is_refused(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    changes: list[str],
    told: str,
) -> None:
    run(configured, population, tmp_path, "rounds.cap=1")
    config, _ = configured(f'start_from="{tmp_path}/releases/latest"', *changes)

    with pytest.raises(StartingModelError, match=told):
        started(config, population)


def test_a_refused_start_leaves_the_folder_to_the_corrected_run(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run(configured, population, tmp_path / "public", "rounds.cap=1")
    latest = f'start_from="{tmp_path}/public/releases/latest"'

    with pytest.raises(StartingModelError):
        run(configured, population, tmp_path / "run", latest, "model.hidden_size=4")
    run(configured, population, tmp_path / "run", latest, "rounds.cap=1")

    # A run that is on its way no longer needs the file that it started from.
    (tmp_path / "public").rename(tmp_path / "elsewhere")
    run(configured, population, tmp_path / "run", latest, "rounds.cap=1")


def test_a_model_of_other_words_is_refused(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run(configured, population, tmp_path, "rounds.cap=1")
    config, _ = configured(f'start_from="{tmp_path}/releases/latest"')
    words = tmp_path / "words.txt"
    words.write_text(
        "\n".join(["<unk>", "<eos>", *(chr(97 + k % 26) * (1 + k // 26) for k in range(48))]) + "\n"
    )
    other, _ = configured(
        f'start_from="{tmp_path}/releases/latest"', f'vocabulary={{path="{words}",size=50}}'
    )

    started(config, population)
    with pytest.raises(StartingModelError, match="has another"):
        starting_parameters(other, make_plan(other, "0" * 32))


def test_a_folder_that_is_no_release_is_refused(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    config, _ = configured(f'start_from="{tmp_path}"')

    with pytest.raises(ReleaseError, match="cannot be read"):
        started(config, population)


def test_a_model_of_more_layers_is_no_first_stage(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    model = (
        'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
        "layer_count=2, feedforward_size=8, context_size=16}"
    )
    run(configured, population, tmp_path / "public", model, "rounds.cap=1")

    config, _ = configured(
        model,
        "growth={target_layer_count=2, stage_count=2, round_count=4}",
        f'start_from="{tmp_path}/public/releases/latest"',
    )

    with pytest.raises(StartingModelError, match=r"has blocks\.1\.attention.* besides; leave out"):
        started(config, population)
