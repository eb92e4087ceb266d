"""What runs on a cluster leave here, and when they begin again; this process plays the nodes."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import simulation.runs.distant_run
from server.releases.files import read_release
from simulation.config.simulation import SimulationConfig
from simulation.engines.node_tasks import Ended, Lost, NodeTasks, Said
from simulation.engines.scratch import scratch_folder
from simulation.figures.metrics import Figures, read_metrics
from simulation.figures.progress import Quiet, Reporter
from simulation.population.population import TextPopulation
from simulation.runs.cluster_starter import ClusterStarter
from simulation.runs.runner import RunOptions, run_simulation
from simulation.runs.whole_run import WholeRun
from simulation.workers.engine import WorkerError
from tests.packed_start import write_packed_start

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name folders on the node as this file's: there is no cluster to name the command."""
    played = partial(scratch_folder, "played")
    monkeypatch.setattr(simulation.runs.distant_run, "node_scratch", played)


class NodeDiedError(BaseException):
    """Stand in for the end of a node: nothing of the run ends in order."""


class Nodes:
    """Nodes that do one task after the other, and die while they tell of these rounds."""

    def __init__(self, *deaths: int) -> None:
        self._deaths = list(deaths)
        self._waiting: list[tuple[int, Any]] = []
        self.begun = 0

    def share(self, value: object) -> object:
        return value

    def begin(self, function: Callable[..., object], *arguments: object) -> int:
        self.begun += 1
        # As on the way to a node.
        task = pickle.loads(pickle.dumps((function, arguments)))  # noqa: S301
        self._waiting.append((self.begun, task))
        return self.begun

    def news(self) -> Sequence[Said | Ended | Lost]:
        key, (function, arguments) = self._waiting.pop(0)
        told: list[Said | Ended | Lost] = []

        def say(message: Any) -> None:
            figures: Figures = getattr(message, "figures", {})
            if self._deaths and figures.get("round") == self._deaths[0]:
                self._deaths.pop(0)
                raise NodeDiedError
            told.append(Said(key, message))

        try:
            told.append(Ended(key, function(say, *arguments)))
        except NodeDiedError:
            told.append(Lost(key, "the node died"))
        return told

    def cancel(self, key: int) -> None:
        self._waiting = [task for task in self._waiting if task[0] != key]

    def cancel_all(self) -> None:
        self._waiting.clear()


@contextmanager
def quietly(name: str, *, first_round: int, last_round: int) -> Iterator[Reporter]:
    yield Quiet()


def on(nodes: Nodes) -> ClusterStarter:
    return ClusterStarter(cast("NodeTasks", nodes), quietly)


def whole_run(
    configured: Configured, population: TextPopulation, folder: Path, *settings: str
) -> WholeRun:
    config, tables = configured(*settings)
    return WholeRun("run", config, tables, lambda: population, folder, RunOptions())


@pytest.mark.slow
def test_a_run_under_a_guarantee_never_releases_a_round_again(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    guarded = (
        'privacy={mode="central", clipping_norm=5.0, noise_multiplier=1.0, delta=1e-3, '
        'epsilon_budget=1e6, adjacency="zero-out"}'
    )
    nodes = Nodes(3)
    run = whole_run(configured, population, tmp_path / "run", guarded)

    with on(nodes) as starter:
        starter.start(run).result()

    assert nodes.begun == 2
    rounds = [row["round"] for row in read_metrics(run.folder)]
    assert rounds == [1, 2, 3, 4]
    # Rounds 1 and 2 had arrived; the third was lost with the node, and nobody saw it.
    assert [path.name for path in sorted((run.folder / "releases").glob("0*"))][-1] == "000004"


@pytest.mark.slow
def test_a_run_that_is_lost_again_and_again_fails_with_what_to_do(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    # Round 1 is new the first time only.
    nodes = Nodes(2, 2, 2)

    with (
        on(nodes) as starter,
        pytest.raises(WorkerError, match="run was lost 3 times in a row: the node died; if memory"),
    ):
        starter.start(whole_run(configured, population, tmp_path / "run")).result()

    assert nodes.begun == 3


@pytest.mark.slow
@pytest.mark.parametrize("form", ["release", "packed"])
def test_a_run_starts_from_a_model_that_only_this_machine_has(
    configured: Configured, population: TextPopulation, tmp_path: Path, form: str
) -> None:
    config, tables = configured("rounds.cap=1")
    run_simulation(config, tables, population, tmp_path / "first", RunOptions())
    start = tmp_path / "first" / "releases" / "latest"
    if form == "packed":
        start = packed(start, tmp_path / "first.sotto")
    config, tables = configured("rounds.cap=1", "seed=2", f'start_from="{start}"')
    here = run_simulation(config, tables, population, tmp_path / "here", RunOptions())
    run = WholeRun("run", config, tables, lambda: population, tmp_path / "there", RunOptions())

    with on(Nodes()) as starter:
        assert starter.start(run).result() == here

    models = [read_release(tmp_path / name / "releases" / "latest") for name in ("here", "there")]
    assert torch.equal(*(torch.tensor(model.parameters) for model in models))


def test_a_run_of_another_configuration_is_refused_by_its_folder_here(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")

    with (
        on(Nodes()) as starter,
        pytest.raises(ValueError, match=f"^{folder} holds a run with another configuration"),
    ):
        starter.start(whole_run(configured, population, folder)).result()


def test_what_keeps_a_run_from_starting_is_the_error_of_its_result(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    def missing() -> TextPopulation:
        raise ValueError("nobody is there")

    nodes = Nodes()
    run = whole_run(configured, population, tmp_path / "run")
    with on(nodes) as starter:
        started = starter.start(run._replace(population=missing))
        with pytest.raises(ValueError, match="nobody is there"):
            started.result()

    assert nodes.begun == 0


def test_two_runs_of_one_folder_are_one(
    configured: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    nodes = Nodes()
    run = whole_run(configured, population, tmp_path / "run")

    with on(nodes) as starter:
        first, second = starter.start(run), starter.start(run)
        first.drop()
        again = starter.start(run)

    assert nodes.begun == 2
    assert first == second != again


def packed(release: Path, path: Path) -> Path:
    """Write a release as a packed file."""
    stored = read_release(release)
    words, model = stored.plan.vocabulary, stored.plan.model
    assert words is not None
    return write_packed_start(path, model, words, stored.parameters)
