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
from server.releases.method_state import method_state_of
from server.releases.starting_model import StartingModelError, starting_parameters
from simulation.config.simulation import SimulationConfig
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
TRANSFORMER = (
    'model={family="transformer_lm", vocabulary_size=50, model_size=8, head_count=2, '
    "layer_count=2, feedforward_size=8, context_size=16}"
)
MEAN = 'aggregation={rule="mean"}'
SMALLER = "model.model_size=4"
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


def test_a_hypernetwork_begins_by_making_the_start_s_attention(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    ended = run(configured, population, tmp_path / "public", TRANSFORMER, "rounds.cap=1")
    settings = (
        TRANSFORMER,
        'personalisation={method="fedtp", hypernetwork={learning_rate=1e-30}}',
        "rounds.cap=1",
    )

    begun = f'start_from="{tmp_path}/public/releases/latest"'
    run(configured, population, tmp_path / "own", *settings, begun)
    run(configured, population, tmp_path / "drawn", *settings)

    learnt = schema_of(configured(TRANSFORMER)[0].model).slices
    for folder, is_begun in (("own", True), ("drawn", False)):
        for name, base in bases_in(tmp_path / folder, configured(*settings)[0]).items():
            assert torch.equal(base, ended[learnt[name]]) == is_begun, name


def test_a_hypernetwork_begins_where_another_one_ended(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    learning, standing = (
        f'personalisation={{method="fedtp", hypernetwork={{learning_rate={rate}}}}}'
        for rate in ("0.5", "1e-30")
    )
    run(configured, population, tmp_path / "one", TRANSFORMER, learning, "rounds.cap=1")

    settings = (TRANSFORMER, standing, "rounds.cap=1")
    begun = f'start_from="{tmp_path}/one/releases/latest"'
    run(configured, population, tmp_path / "two", *settings, begun)
    run(configured, population, tmp_path / "drawn", *settings)

    one, two, drawn = (
        bases_in(tmp_path / name, configured(*settings)[0]) for name in ("one", "two", "drawn")
    )
    for name, base in one.items():
        assert torch.equal(two[name], base)
        assert not torch.equal(drawn[name], base)


def bases_in(folder: Path, config: SimulationConfig) -> dict[str, torch.Tensor]:
    """Return what the hypernetwork of a run's last release makes each tensor around."""
    state = method_state_of(config)
    stored = read_release(folder / "releases" / "latest").personalisation
    assert stored is not None
    # A step size is no part of a state's shape.
    state.restore(stored)
    phi, places = state.phi(), state.phi_schema.slices
    return {
        name: phi[places[f"outputs.{number}.base"]]
        for number, name in enumerate(state.generated.slices)
    }


def test_a_start_that_a_hypernetwork_cannot_take_is_refused_before_the_run_has_a_folder(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run(configured, population, tmp_path / "public", TRANSFORMER, "rounds.cap=1")
    begun = f'start_from="{tmp_path}/public/releases/latest"'
    everything = 'personalisation={method="pfedhn", hypernetwork={output="mixture"}}'

    with pytest.raises(StartingModelError, match=r"embedding\.weight of shape \(50, 4\)"):
        run(
            configured,
            population,
            tmp_path / "run",
            *(TRANSFORMER, SMALLER, MEAN, everything, begun),
        )

    assert not (tmp_path / "run").exists()


def test_a_hypernetwork_that_forgets_its_start_says_so(
    configured: Configured,
    population: Population,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    literal = 'personalisation={method="fedtp", hypernetwork={output="literal"}}'
    run(configured, population, tmp_path / "one", TRANSFORMER, literal, "rounds.cap=1")
    assert not caplog.messages

    begun = f'start_from="{tmp_path}/one/releases/latest"'
    run(configured, population, tmp_path / "two", TRANSFORMER, literal, begun, "rounds.cap=1")

    assert "what is made for each device is drawn" in caplog.text


def test_a_model_of_more_layers_is_no_first_stage(
    configured: Configured, population: Population, tmp_path: Path
) -> None:
    run(configured, population, tmp_path / "public", TRANSFORMER, "rounds.cap=1")

    config, _ = configured(
        TRANSFORMER,
        "growth={target_layer_count=2, stage_count=2, round_count=4}",
        f'start_from="{tmp_path}/public/releases/latest"',
    )

    with pytest.raises(StartingModelError, match=r"has blocks\.1\.attention.* besides; leave out"):
        started(config, population)
