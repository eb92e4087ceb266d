"""What is opened again is what the run's final figures are of."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models.tasks.metrics import Counts
from models.tasks.registry import task_named
from simulation.population.dealing import build_population
from simulation.understanding.client_histogram import client_accuracies
from simulation.understanding.finished_run import NoFinishedRunError, open_run

MakeRun = Callable[..., Path]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedtp", "vanilla", "fedper", "ditto", "pfedme"])
def test_clients_predict_with_the_networks_that_were_scored(run_of: MakeRun, method: str) -> None:
    folder = run_of(method)
    run = open_run(folder)
    population = build_population(run.config, None)
    task = task_named(run.plan.task)

    counts = {
        name: task.evaluate(run.network_of(name), [test], batch_size=64)
        for name, test in population.own_test.items()
    }

    scored = {name: own.accuracy for name, own in counts.items()}
    assert scored == pytest.approx(client_accuracies(folder))
    assert sum(counts.values(), start=Counts()).accuracy == pytest.approx(run.final["accuracy"])


def test_clients_of_a_hypernetwork_have_projections_of_their_own(run_of: MakeRun) -> None:
    run = open_run(run_of("fedtp"))
    first, second = (
        dict(run.network_of(name).named_parameters()) for name in ("device-0001", "device-0002")
    )

    different = {name for name in first if not torch.equal(first[name], second[name])}
    assert different == {f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1)}
    with pytest.raises(ValueError, match='is of method "global"'):
        open_run(run_of("fedavg")).hypernetwork()


def test_a_folder_without_a_finished_run_is_refused(run_of: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(NoFinishedRunError, match="holds no run; give the folder of one"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_bytes((run_of("fedavg") / "run.json").read_bytes())
    with pytest.raises(NoFinishedRunError, match="is not over; give sotto-simulate run the same"):
        open_run(tmp_path)
