"""Simulated runs under a guarantee: a ledger beside the model, nothing of one client anywhere."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from models.networks.flat_parameters import initial_parameters
from privacy.accounting.accountant import epsilon_of
from privacy.accounting.budget import PrivacyBudget, rounds_left
from privacy.accounting.events import (
    BufferedRelease,
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
    TreeRelease,
)
from privacy.accounting.tally import Tally
from privacy.cli import main
from privacy.noise.tree import DerivedKeys
from server.config.plans import make_plan
from server.config.store import StoreSettings
from server.records.ledger import ledger_entries, ledger_events
from server.records.store import Store, open_store
from server.releases.files import read_release
from simulation.cli import main as simulate
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import read_metrics
from simulation.population.population import Population, TextPopulation
from simulation.rounds.attendance import SimulationError
from simulation.runs.checkpoint import CheckpointError
from simulation.runs.runner import RunOptions, run_simulation
from tests.simulation.here import HERE
from tests.simulation.killed_runs import RunKilledError, StopsAfter

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
CENTRAL = {
    "mode": "central",
    "clipping_norm": 1.0,
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "epsilon_budget": 100.0,
    "adjacency": "zero-out",
}
TREE = CENTRAL | {"mode": "ftrl", "min_separation": 2, "max_participation": 2}
BUFFERS = TREE | {"mechanism": "blt", "buffer_decays": [0.9, 0.5], "buffer_scales": [0.3, 0.3]}
EQUAL = {"rule": "mean", "weighting": "equal"}
EVENT = GaussianRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=None)


@pytest.fixture
def guarded(configured: Configured) -> Callable[..., tuple[SimulationConfig, dict[str, Any]]]:
    """Return a function that configures a small run in mode ``central``, tables replaced."""

    def make(**tables: dict[str, Any]) -> tuple[SimulationConfig, dict[str, Any]]:
        _, base = configured()
        changed = {**base, "privacy": CENTRAL, "aggregation": EQUAL, **tables}
        return config_from(changed, "the test's file"), changed

    return make


@pytest.fixture
def opened() -> Iterator[Callable[[Path], Store]]:
    stores = []

    def open_it(folder: Path) -> Store:
        stores.append(open_store(StoreSettings().rooted(folder)))
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()


def run_of(folder: Path) -> str:
    return str(json.loads((folder / "run.json").read_text())["run"])


@pytest.mark.slow
def test_every_round_is_in_the_ledger_and_its_release_names_the_head(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    config, tables = guarded()

    run_simulation(config, tables, population, tmp_path, HERE)

    store = opened(tmp_path)
    assert ledger_events(store, run_of(tmp_path)) == [EVENT] * 4
    entries = ledger_entries(store)
    assert [entry.round_number for entry in entries] == [1, 2, 3, 4]
    newest = read_release(tmp_path / "releases" / "latest").record
    assert newest.ledger_sha256 == entries[-1].sha256.hex()
    spent = [row["epsilon"] for row in read_metrics(tmp_path)]
    assert spent == pytest.approx([epsilon_of([EVENT] * count, 1e-3) for count in (1, 2, 3, 4)])


@pytest.mark.slow
def test_no_file_holds_a_figure_of_one_client(
    guarded: Configured, population: TextPopulation, tmp_path: Path
) -> None:
    own = {name: stream[:20] for name, stream in population.clients.items()}
    config, tables = guarded()

    final = run_simulation(config, tables, replace(population, own_test=own), tmp_path, HERE)

    assert final["accuracy"] is not None
    assert not (tmp_path / "clients.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_run_that_was_killed_spends_no_round_twice(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
    rounds: int,
) -> None:
    config, tables = guarded()
    with pytest.raises(RunKilledError):
        run_simulation(
            config, tables, population, tmp_path, HERE._replace(reporter=StopsAfter(rounds))
        )
    released = read_release(tmp_path / "releases" / "latest").record

    run_simulation(config, tables, population, tmp_path, HERE)

    assert released.round == rounds
    assert [entry.round_number for entry in ledger_entries(opened(tmp_path))] == [1, 2, 3, 4]
    assert [row["round"] for row in read_metrics(tmp_path)] == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_run_stops_before_the_round_that_would_pass_its_budget(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
    capsys: pytest.CaptureFixture[str],
) -> None:
    budget = PrivacyBudget(epsilon_budget=epsilon_of([EVENT] * 2, 1e-3) + 0.1, delta=1e-3)
    config, tables = guarded(privacy=CENTRAL | {"epsilon_budget": budget.epsilon_budget})

    final = run_simulation(config, tables, population, tmp_path, HERE)

    assert rounds_left(Tally(), EVENT, budget, most=4) == 2
    assert len(ledger_entries(opened(tmp_path))) == 2
    assert final["round"] == 2
    assert "the run ends before round 3" in capsys.readouterr().err


@pytest.mark.slow
def test_the_same_keys_repeat_a_run_bit_for_bit_and_fresh_ones_do_not(
    guarded: Configured, population: Population, tmp_path: Path
) -> None:
    rounds = {"cap": 2, "cohort_size": 3, "quorum": 2, "deadline_s": 10.0}
    config, tables = guarded(rounds=rounds)
    keys = DerivedKeys(bytes(32))
    for name in ("one", "two"):
        run_simulation(config, tables, population, tmp_path / name, HERE, noise_keys=keys)
    run_simulation(config, tables, population, tmp_path / "three", HERE)

    digests = [
        read_release(tmp_path / name / "releases" / "latest").record.parameters_sha256
        for name in ("one", "two", "three")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_tree_keeps_people_apart_and_goes_on_with_its_noise(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    rounds = {"cap": 3, "cohort_size": 2, "quorum": 2, "deadline_s": 10.0}
    config, tables = guarded(privacy=TREE, rounds=rounds)
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, tmp_path, HERE._replace(reporter=StopsAfter(1)))
    run_simulation(config, tables, population, tmp_path, HERE)

    events = ledger_events(opened(tmp_path), run_of(tmp_path))
    assert (
        events
        == [
            TreeRelease(
                noise_multiplier=1.0,
                adjacency="zero-out",
                min_separation=2,
                max_participation=2,
                tree_number=0,
            )
        ]
        * 3
    )
    with opened(tmp_path).read() as connection:
        rows = connection.exec_driver_sql(
            "SELECT participation_count, last_round FROM clients"
        ).all()
    assert sum(count for count, _ in rows) == 6
    # Nobody of round 2 was in round 3 or 1: two of the six took part in each pair of rounds.
    assert sum(last == 3 for _, last in rows) == 2
    assert sum(last == 2 for _, last in rows) == 2
    assert all(count <= 2 for count, _ in rows)


def test_a_run_with_buffers_that_was_stopped_ends_in_the_same_bits(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    rounds = {"cap": 3, "cohort_size": 2, "quorum": 2, "deadline_s": 10.0}
    config, tables = guarded(privacy=BUFFERS, rounds=rounds)
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def run(folder: Path, options: RunOptions) -> None:
        # Keys of the same secret: what is kept with them goes with the process.
        keys = DerivedKeys(bytes(32))
        run_simulation(config, tables, population, folder, options, noise_keys=keys)

    run(whole, HERE)
    with pytest.raises(RunKilledError):
        run(parts, HERE._replace(reporter=StopsAfter(2)))
    run(parts, HERE)

    assert torch.equal(parameters_of(parts), parameters_of(whole))
    event = BufferedRelease(
        noise_multiplier=1.0,
        adjacency="zero-out",
        min_separation=2,
        max_participation=2,
        buffer_decays=(0.9, 0.5),
        buffer_scales=(0.3, 0.3),
    )
    assert ledger_events(opened(parts), run_of(parts)) == [event] * 3


@pytest.mark.slow
def test_a_tree_of_noise_on_sums_that_was_killed_ends_in_the_same_bits(
    guarded: Configured, population: Population, tmp_path: Path
) -> None:
    rounds = {"cap": 2, "cohort_size": 2, "quorum": 2, "deadline_s": 10.0}
    attentive = {"rule": "attentive", "attention_strength": 1.0}
    config, tables = guarded(
        privacy=TREE | {"noise_on": "sums"}, aggregation=attentive, rounds=rounds
    )
    whole, killed, keys = tmp_path / "whole", tmp_path / "killed", DerivedKeys(bytes(32))
    run_simulation(config, tables, population, whole, HERE, noise_keys=keys)
    stopping = HERE._replace(reporter=StopsAfter(1))
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, killed, stopping, noise_keys=keys)
    run_simulation(config, tables, population, killed, HERE, noise_keys=keys)

    assert torch.equal(parameters_of(killed), parameters_of(whole))
    # A sum of weights for each layer, over the rounds so far.
    counts = [len(str(row["weights_so_far"]).split()) for row in read_metrics(killed)]
    assert counts == [len(config.schema.tensors)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [CENTRAL, TREE], ids=["central", "ftrl"])
def test_compressed_updates_cost_what_others_do_and_get_the_same_noise(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
    privacy: dict[str, Any],
) -> None:
    rounds = {"cap": 1, "cohort_size": 3, "quorum": 3, "deadline_s": 10.0}
    plain, compressed = tmp_path / "plain", tmp_path / "compressed"
    for folder, more in ((plain, {}), (compressed, {"compression": {"uplink": "int8"}})):
        config, tables = guarded(privacy=privacy, rounds=rounds, **more)
        run_simulation(config, tables, population, folder, HERE, noise_keys=DerivedKeys(bytes(32)))

    paid, paid_compressed = (
        ledger_events(opened(folder), run_of(folder)) for folder in (plain, compressed)
    )
    assert len(paid) == 1
    assert paid_compressed == paid
    (epsilon,), (epsilon_compressed,) = (
        [row["epsilon"] for row in read_metrics(folder)] for folder in (plain, compressed)
    )
    assert epsilon_compressed == epsilon == pytest.approx(epsilon_of(paid, 1e-3))
    # int8 moves a value by less than 1/127 of the largest, which is at most 1 within the clip, and
    # clipping again brings no two vectors apart. Other noise moves each by about sqrt(2) / 3.
    moved = parameters_of(compressed) - parameters_of(plain)
    assert 0 < moved.norm() <= math.sqrt(len(moved)) / 127


@pytest.mark.slow
def test_a_sampled_run_writes_neither_who_nor_how_many(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    rounds = {
        "cap": 3,
        "selection": "sampled",
        "participation_rate": 0.5,
        "population_size": 6,
        "quorum": 1,
        "deadline_s": 10.0,
        "close_early": False,
    }
    config, tables = guarded(rounds=rounds)

    run_simulation(config, tables, population, tmp_path, HERE)

    with opened(tmp_path).read() as connection:
        counts = connection.exec_driver_sql(
            "SELECT participation_count, last_round FROM clients"
        ).all()
        updates = connection.exec_driver_sql("SELECT contribution_count FROM releases").all()
    assert set(counts) == {(0, None)}
    assert updates[1:] == [(None,)] * 3
    plan = read_release(tmp_path / "releases" / "latest").plan
    # P[Bin(6, 1/2) > 5] = 1/64 is above 1e-4 / 3, so there are as many places as people.
    assert plan.cohort_size == 6


def test_more_people_than_declared_are_refused(
    guarded: Configured, population: Population, tmp_path: Path
) -> None:
    rounds = {
        "cap": 3,
        "selection": "sampled",
        "participation_rate": 0.5,
        "population_size": 5,
        "quorum": 1,
        "deadline_s": 10.0,
        "close_early": False,
    }
    config, tables = guarded(rounds=rounds)

    with pytest.raises(RuntimeError, match="at most 5 devices may be enrolled"):
        run_simulation(config, tables, population, tmp_path, HERE)


def test_an_edited_ledger_ends_the_run(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    config, tables = guarded()
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, tmp_path, HERE._replace(reporter=StopsAfter(2)))
    with opened(tmp_path).write() as connection:
        connection.exec_driver_sql("DELETE FROM ledger WHERE sequence = 1")

    with pytest.raises(CheckpointError, match="ledger entry 1 is missing"):
        run_simulation(config, tables, population, tmp_path, HERE)


def test_words_of_private_text_are_no_vocabulary_under_a_guarantee(guarded: Configured) -> None:
    with pytest.raises(ValueError, match="counts words of private text"):
        guarded(vocabulary={"path": "training-split", "size": 50})


SHOWN = {
    "evaluation_s",
    "round",
    "round_s",
    "epsilon",
    "delta",
    "valid_perplexity",
    "valid_top1_recall",
    "valid_top3_recall",
    "valid_unknown_words",
    "valid_listed_top1_recall",
    "valid_listed_top3_recall",
}


@pytest.mark.slow
def test_nothing_of_one_client_is_written(
    guarded: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = guarded(aggregation={"rule": "attentive"})
    run_simulation(config, tables, population, tmp_path, HERE)

    for row in read_metrics(tmp_path):
        assert set(row) <= SHOWN
    assert simulate(["report", str(tmp_path), "--html", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert f"epsilon {epsilon_of([EVENT] * 4, 1e-3):.4g} at delta 0.001 spent" in page
    assert "device-0" not in page
    # Noised figures and times are full of digits, and may happen to look like anything.
    shown = rb'"(round_s|evaluation_s|(valid|test)_[a-z0-9_]+)": ?[-+.e0-9]+'
    written = re.sub(shown, b"", everything_in(tmp_path))
    assert b"valid_perplexity" not in written
    for name, value in figures_of_the_first_round(config, population).items():
        for form in (f"{value:.5g}", f"{value:.4f}"):
            assert form.encode() not in written, name


LOCAL = {
    "mode": "local",
    "clipping_norm": 1.0,
    "noise_multiplier": 9.0,
    "delta": 1e-3,
    "epsilon_budget": 100.0,
}
SENT = LocalRelease(noise_multiplier=9.0)
MASKED = CENTRAL | {
    "mode": "masked",
    "noise_multiplier": 9.0,
    "coordinator_epsilon_budget": 100.0,
    "honest_share": 1.0,
}
UNMASKED = MaskedAttempt(noise_multiplier=9.0, adjacency="zero-out", honest_contributors=3)
WITH_ATTEMPTS = pytest.mark.parametrize(
    ("privacy", "sent"), [(LOCAL, SENT), (MASKED, UNMASKED)], ids=["local", "masked"]
)
# Of six devices each stays away with a chance of 0.99, so no attempt has its quorum.
AWAY = {"cap": 2, "cohort_size": 6, "quorum": 3, "deadline_s": 10.0, "retry_limit": 2}
HARDLY_ANYBODY = {"dataset": "manual", "partition": "users", "absence_rate": 0.99}


@pytest.mark.slow
@WITH_ATTEMPTS
def test_noise_of_each_devices_own_is_paid_for_with_every_attempt_and_once(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
    *,
    capsys: pytest.CaptureFixture[str],
    privacy: dict[str, Any],
    sent: PrivacyEvent,
) -> None:
    config, tables = guarded(privacy=privacy, rounds=AWAY, data=HARDLY_ANYBODY)
    for _ in range(2):  # The second time as after a kill: the same attempts again.
        with pytest.raises(SimulationError, match="given up after 3 attempts"):
            run_simulation(config, tables, population, tmp_path, HERE)

    entries = ledger_entries(opened(tmp_path))
    assert [entry.round_number for entry in entries] == [1, 1, 1]
    assert ledger_events(opened(tmp_path), run_of(tmp_path)) == [sent] * 3
    capsys.readouterr()
    assert main(["epsilon", "--ledger", str(tmp_path / "store.sqlite"), "--delta", "1e-3"]) == 0
    told = capsys.readouterr().out
    assert f"epsilon {epsilon_of([sent] * 3, 1e-3):.4g} " in told
    of_coordinator = epsilon_of([sent] * 3, 1e-3, "coordinator")
    assert f"against the coordinator {of_coordinator:.4g}\n" in told


@WITH_ATTEMPTS
def test_a_run_stops_before_the_attempt_that_would_pass_its_budget(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
    *,
    capsys: pytest.CaptureFixture[str],
    privacy: dict[str, Any],
    sent: PrivacyEvent,
) -> None:
    budget = epsilon_of([sent] * 2, 1e-3, "coordinator") + 1e-3
    name = "epsilon_budget" if privacy is LOCAL else "coordinator_epsilon_budget"
    config, tables = guarded(privacy=privacy | {name: budget}, rounds=AWAY, data=HARDLY_ANYBODY)

    final = run_simulation(config, tables, population, tmp_path, HERE)

    assert final["round"] == 0
    assert len(ledger_entries(opened(tmp_path))) == 2
    assert "the run ends before round 1" in capsys.readouterr().err


@pytest.mark.slow
def test_releases_of_updates_that_were_paid_for_cost_nothing_more(
    guarded: Configured, population: Population, tmp_path: Path, opened: Callable[[Path], Store]
) -> None:
    config, tables = guarded(privacy=LOCAL)

    run_simulation(config, tables, population, tmp_path, HERE)

    entries = ledger_entries(opened(tmp_path))
    assert [entry.round_number for entry in entries] == [1, 2, 3, 4]
    newest = read_release(tmp_path / "releases" / "latest").record
    assert newest.ledger_sha256 == entries[-1].sha256.hex()
    spent = [row["epsilon"] for row in read_metrics(tmp_path)]
    assert spent == pytest.approx([epsilon_of([SENT] * count, 1e-3) for count in (1, 2, 3, 4)])


@pytest.mark.slow
def test_not_even_how_many_updates_were_set_aside_is_written(
    guarded: Configured, population: Population, tmp_path: Path
) -> None:
    rounds = {"cap": 2, "cohort_size": 6, "quorum": 4, "deadline_s": 10.0}
    config, tables = guarded(rounds=rounds, attack={"kind": "nan", "fraction": 0.2})

    run_simulation(config, tables, population, tmp_path, HERE)

    rows = read_metrics(tmp_path)
    assert [row["round"] for row in rows] == [1, 2]
    assert not any(name.startswith("screened") for row in rows for name in row)


def parameters_of(folder: Path) -> Tensor:
    return torch.tensor(read_release(folder / "releases" / "latest").parameters)


def everything_in(folder: Path) -> bytes:
    return b"\n".join(
        path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "parameters.bin"
    )


def figures_of_the_first_round(
    config: SimulationConfig, population: Population
) -> dict[str, float]:
    """Train every client once, as round 1 does, and return what must not be shown."""
    torch.set_num_threads(1)
    plan = make_plan(config, "ab" * 16, vocabulary=population.vocabulary)
    trainer = LocalTrainer(plan)
    figures: dict[str, float] = {}
    for name, stream in population.clients.items():
        result = trainer.train(
            initial_parameters(config.model, config.seed),
            stream,
            round_number=1,
            client_name=name,
        )
        figures[f"{name} norm"] = result.update_norm
        figures[f"{name} loss"] = result.mean_loss
    return figures


@pytest.mark.slow
def test_a_masked_run_pays_for_attempts_and_releases_and_tells_both_figures(
    guarded: Configured,
    population: Population,
    tmp_path: Path,
    opened: Callable[[Path], Store],
) -> None:
    rounds = {"cap": 2, "cohort_size": 3, "quorum": 3, "deadline_s": 10.0}
    config, tables = guarded(privacy=MASKED, rounds=rounds)
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, population, tmp_path, HERE._replace(reporter=StopsAfter(1)))
    run_simulation(config, tables, population, tmp_path, HERE)

    released = MaskedRelease(noise_multiplier=9.0, adjacency="zero-out", honest_contributors=3)
    paid = ledger_events(opened(tmp_path), run_of(tmp_path))
    assert paid == [UNMASKED, released] * 2
    for count, row in enumerate(read_metrics(tmp_path), start=1):
        assert row["epsilon"] == pytest.approx(epsilon_of([released] * count, 1e-3))
        assert row["coordinator_epsilon"] == pytest.approx(row["epsilon"])
    newest = read_release(tmp_path / "releases" / "latest").record
    assert newest.ledger_sha256 == ledger_entries(opened(tmp_path))[-1].sha256.hex()
    assert "from the coordinator" in newest.guarantee
