"""Whole runs on a cluster of two nodes end as they do here, whatever is lost on the way."""

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import simulation.commands.runs
import simulation.engines.node_tasks
import simulation.runs.starting
from benchmarks.parts.two_nodes import TwoNodes
from benchmarks.tables.arguments import Share
from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.maker import Maker, with_curve
from benchmarks.tables.records import read_records
from benchmarks.tables.report import write_report
from server.releases.files import read_release
from simulation.cli import main
from simulation.config.simulation import SimulationConfig
from simulation.engines.cluster import Cluster, EngineError
from simulation.engines.node_tasks import NodeTasks
from simulation.engines.scratch import scratch_place
from simulation.figures.metrics import Figures, Value, read_metrics
from simulation.figures.progress import Quiet, Reporter
from simulation.population.population import TextPopulation
from simulation.rounds.attendance import SimulationError
from simulation.runs.cluster_starter import ClusterStarter
from simulation.runs.runner import RunOptions
from simulation.runs.whole_run import LocalStarter, RunStarter, WholeRun
from simulation.tuning.candidate import Deployment
from simulation.tuning.measuring import Laboratory, Measurement
from simulation.tuning.space import make_space, parse_dimension
from simulation.tuning.study import search
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.papers,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(600),
]

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
TIMES = {"round_s", "evaluation_s"}
QUIET = Quiet()


class KillsItsNode(NamedTuple):
    """After round 1, end the node that the run is on; on another node, wait for that first."""

    victim: str
    trace: Path

    def round_finished(self, figures: Figures) -> None:
        import ray

        if figures["round"] != 1 or self.trace.exists():
            return
        if ray.get_runtime_context().get_node_id() == self.victim:
            self.trace.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(7)
        wait_for(self.trace)


class WaitsFor(NamedTuple):
    """Hold a run after each round until a file is there."""

    trace: Path

    def round_finished(self, figures: Figures) -> None:
        wait_for(self.trace)


class HearsNoInterrupt(NamedTuple):
    """Hold a run after each round until it is let go, and say that it is held."""

    held: Path
    let_go: Path

    def round_finished(self, figures: Figures) -> None:
        self.held.touch()
        while not self.let_go.exists():
            with suppress(KeyboardInterrupt):
                wait_for(self.let_go)


def wait_for(trace: Path) -> None:
    while not trace.exists():
        time.sleep(0.05)


@contextmanager
def quietly(name: str, *, first_round: int, last_round: int) -> Iterator[Reporter]:
    yield Quiet()


def on_cluster(**options: Any) -> ClusterStarter:
    return ClusterStarter(NodeTasks(processors=1), quietly, **options)


@pytest.fixture
def through_flags(joined: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the cluster that this process has joined: it can join one at a time."""

    @contextmanager
    def same(engine: str, address: str | None, **_: object) -> Iterator[Cluster | None]:
        yield joined if engine == "ray" else None

    monkeypatch.setattr(simulation.runs.starting, "cluster_for", same)
    monkeypatch.setattr(simulation.commands.runs, "cluster_for", same)


def runs_of(
    configured: Configured,
    population: TextPopulation,
    folder: Path,
    count: int,
    *settings: str,
    reporter: Reporter = QUIET,
) -> list[WholeRun]:
    """Return runs of so many seeds."""
    runs = []
    for seed in range(1, count + 1):
        config, tables = configured(*settings, f"seed={seed}")
        options = RunOptions(reporter=reporter)
        name, home = f"seed {seed}", folder / f"seed-{seed}"
        runs.append(WholeRun(name, config, tables, lambda: population, home, options))
    return runs


def with_reporter(run: WholeRun, reporter: Reporter) -> WholeRun:
    return run._replace(options=run.options._replace(reporter=reporter))


def results(starter: RunStarter, runs: list[WholeRun]) -> list[Figures]:
    started = [starter.start(run) for run in runs]
    return [one.result() for one in started]


def kept(run: WholeRun) -> tuple[bytes, list[dict[str, Value]]]:
    """Return the last model and the figures of every round, without what a clock says."""
    rows = [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in read_metrics(run.folder)
    ]
    return read_release(run.folder / "releases" / "latest").parameters.tobytes(), rows


def test_an_interrupted_sweep_leaves_nothing_on_nodes_and_goes_on_with_what_is_finished(
    configured: Configured,
    population: TextPopulation,
    joined: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The held run is killed, as one is whose client takes long: no block of its own ends for it.
    monkeypatch.setattr(simulation.engines.node_tasks, "_CANCEL_S", 0.5)
    here = runs_of(configured, population, tmp_path / "here", 2, "rounds.cap=1")
    first, second = runs_of(configured, population, tmp_path / "there", 2, "rounds.cap=1")
    held, let_go = tmp_path / "held", tmp_path / "let go"
    there = [
        with_reporter(first, WaitsFor(held)),
        with_reporter(second, HearsNoInterrupt(held, let_go)),
    ]
    expected = results(LocalStarter(quietly), here)
    left: list[Path] = []

    def interrupt(done: int, count: int, ended: str | None) -> None:
        if done == 1:
            left.extend(scratch_place().glob("*/run/*"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), on_cluster(on_count=interrupt) as starter:
        results(starter, there)

    assert left
    until(lambda: not list(scratch_place().glob("*/")), limit_s=120)
    (finished,) = tmp_path.glob("there/*/final.json")
    written_at = finished.stat().st_mtime_ns

    let_go.touch()
    with on_cluster() as starter:
        assert results(starter, there) == expected

    assert finished.stat().st_mtime_ns == written_at
    assert [kept(run) for run in there] == [kept(run) for run in here]
    assert not list(scratch_place().glob("*/"))


def test_a_run_that_fails_is_told_as_it_is_here_and_the_others_end(
    configured: Configured,
    population: TextPopulation,
    joined: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing = 'training={learning_rate=1e30, batch_size=2, bptt_steps=5, optimiser="sgd"}'
    (bad,) = runs_of(configured, population, tmp_path / "bad", 1, failing)
    failed = tmp_path / "failed"
    # One, which leaves a processor to the run that it waits for.
    (good,) = runs_of(
        configured, population, tmp_path / "good", 1, "rounds.cap=1", reporter=WaitsFor(failed)
    )
    with pytest.raises(SimulationError) as here:
        results(LocalStarter(quietly), [bad._replace(folder=tmp_path / "here")])

    def note(done: int, count: int, ended: str | None) -> None:
        if ended == bad.name:
            failed.touch()

    with pytest.raises(SimulationError) as there, on_cluster(on_count=note) as starter:
        results(starter, [bad, good])

    assert str(there.value) == str(here.value)
    assert (good.folder / "final.json").exists()
    assert f"seed 1 failed: {there.value}; the others go on" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.papers
def test_a_search_in_batches_is_the_same_here_and_on_a_cluster(
    configured: Configured, population: TextPopulation, joined: Cluster, tmp_path: Path
) -> None:
    _, tables = configured("rounds.cap=2")
    space = make_space(
        ["central"],
        ["mean"],
        dict([parse_dimension("noise_multiplier=0.5..8")]),
        clipping_norm=5.0,
        cohort=500,
    )

    def searched(starter: RunStarter, folder: Path) -> list[Measurement]:
        laboratory = Laboratory(
            tables=tables,
            deployment=Deployment(population_size=10_000, rounds=2, delta=1e-5),
            population=population,
            seeds=(1,),
            worker_count=1,
            folder=folder / "runs",
            starter=starter,
        )
        return search(
            space,
            laboratory,
            trial_count=4,
            batch=2,
            folder=folder,
            seed=1,
            after_trial=lambda *_: None,
        )

    here = searched(LocalStarter(quietly), tmp_path / "here")
    with on_cluster() as starter:
        there = searched(starter, tmp_path / "there")

    assert len(here) > 1
    assert there == here


@pytest.mark.papers
def test_a_command_sweeps_and_audits_on_the_cluster_that_it_is_given(
    through_flags: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["keyboard-tiny", "--rounds", "1", "--set", "vocabulary.size=50",
             "--set", "model.vocabulary_size=50", "--set", "data.client_count=60"]  # fmt: skip
    elsewhere = ["--engine", "ray", "--address", "auto", "--workers", "1"]
    printed = []
    for name, flags in (("here", ["--workers", "1"]), ("there", elsewhere)):
        for command in (["sweep"], ["audit", "--only", "exposure", "--json"]):
            out = ["--out", str(tmp_path / name / command[0])]
            assert main([command[0], *small, *command[1:], *flags, *out]) == 0
        printed.append(capsys.readouterr())

    assert printed[1].out == printed[0].out
    assert "seed 1: 1 of 1 done, 0 under way" in " ".join(printed[1].err.split())


@pytest.mark.papers
def test_a_table_of_runs_on_the_cluster_has_the_records_of_one_made_here(
    through_flags: None, tmp_path: Path
) -> None:
    small = ("rounds.cap=1", "vocabulary.size=50", "model.vocabulary_size=50")
    table = TableDefinition(
        title="Two rows",
        preset="keyboard-tiny",
        rows=(Row("mean", ('aggregation={rule="mean"}',)), Row("attentive", ())),
        minutes=1,
        figures=("test_perplexity",),
        curve=None,
        references=(),
        settings=(*small, "data.client_count=60"),
    )
    records = []
    for engine in ("local", "ray"):
        arguments = argparse.Namespace(
            data=None,
            runs=tmp_path / engine,
            work=tmp_path / engine / "work",
            out=tmp_path / engine / "out",
            workers=1,
            together=1,
            device="cpu",
            share=Share(),
            rounds=None,
            engine=engine,
            address=None,
        )
        maker = Maker(arguments, "benchmarks.test", write_report, with_curve)
        with maker.under_way({"two": table}):
            maker.make("two", table)
        records.append(read_records(tmp_path / engine / "two.jsonl"))

    assert [record.row for record in records[0]] == ["mean", "attentive"]
    assert records[1] == records[0]


def test_more_processors_than_any_node_has_are_refused(joined: Cluster) -> None:
    with pytest.raises(EngineError, match=r"asks for 3 CPU .* more than 1; lower --workers"):
        NodeTasks(processors=3)
    with pytest.raises(EngineError, match=r"asks for 1 GPU .* more than 0; give --device cpu"):
        NodeTasks(processors=1, gpus=1)


@pytest.mark.papers
def test_a_run_loses_no_bit_with_the_process_that_keeps_what_nodes_tell(
    configured: Configured, population: TextPopulation, joined: Cluster, tmp_path: Path
) -> None:
    (here,) = runs_of(configured, population, tmp_path / "here", 1, "rounds.cap=3")
    (there,) = runs_of(configured, population, tmp_path / "there", 1, "rounds.cap=3")
    killed: list[psutil.Process] = []

    class Kills:
        def round_finished(self, figures: Figures) -> None:
            if not killed:
                for process in psutil.Process().children(recursive=True):
                    if process.name().startswith("ray::_Mailbox"):
                        process.kill()
                        killed.append(process)

    @contextmanager
    def show(name: str, *, first_round: int, last_round: int) -> Iterator[Reporter]:
        yield Kills()

    expected = results(LocalStarter(quietly), [here])

    with ClusterStarter(NodeTasks(processors=1), show) as starter:
        assert results(starter, [there]) == expected

    assert killed
    assert kept(there) == kept(here)


@pytest.mark.papers
def test_eight_runs_of_which_some_lose_their_node_end_as_they_do_here(
    configured: Configured,
    population: TextPopulation,
    nodes: TwoNodes,
    joined: Cluster,
    tmp_path: Path,
) -> None:
    here = runs_of(configured, population, tmp_path / "here", 8, "rounds.cap=2")
    killer = KillsItsNode(nodes.second, tmp_path / "killed")
    there = runs_of(configured, population, tmp_path / "there", 8, "rounds.cap=2", reporter=killer)
    expected = results(LocalStarter(quietly), here)

    with on_cluster() as starter:
        assert results(starter, there) == expected

    assert not nodes.second_is_alive
    assert [kept(run) for run in there] == [kept(run) for run in here]
