"""Clients measure a simulated run's models under a guarantee, and the run follows what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from models.text.vocabulary import shipped_vocabulary
from privacy.accounting.events import EvaluationRelease, SecretCoinFlips
from server.config.store import StoreSettings
from server.records.ledger import ledger_entries, ledger_events
from server.records.store import open_store
from simulation.config.simulation import SimulationConfig, config_from, read_tables
from simulation.figures.metrics import read_metrics
from simulation.population.dealing import build_population
from simulation.population.population import Population, PopulationError, as_text
from simulation.runs.runner import run_simulation
from tests.simulation.here import HERE
from tests.simulation.killed_runs import RunKilledError, StopsAfter
from tests.simulation.runs.test_guarded_runs import CENTRAL, EQUAL, EVENT, run_of

Configured = Callable[..., tuple[SimulationConfig, dict[str, Any]]]
# So little noise on six clients that their figures mean something; nobody is protected by it.
QUIET = {"noise_multiplier": 1e-3, "token_cap": 50, "loss_cap": 8.0}
ASKED = {"kind": "devices", "cohort_size": 3, "quorum": 2, "noise": QUIET}
EVALUATED = EvaluationRelease(noise_multiplier=1e-3, adjacency="zero-out", sampling=None)
SAMPLED = {
    "cap": 2,
    "selection": "sampled",
    "participation_rate": 0.5,
    "population_size": 6,
    "quorum": 1,
    "deadline_s": 10.0,
    "close_early": False,
}


@pytest.fixture
def asking(configured: Configured) -> Configured:
    def make(**tables: dict[str, Any]) -> tuple[SimulationConfig, dict[str, Any]]:
        _, base = configured()
        privacy = CENTRAL | {"epsilon_budget": 1e8, "clipping_norm": 0.5}
        changed = {
            **base,
            "data": {"dataset": "jsonl", "partition": "users", "split": "by-user-time"},
            "privacy": privacy,
            "aggregation": EQUAL,
            "evaluation": ASKED,
            **tables,
        }
        return config_from(changed, "the test's file"), changed

    return make


@pytest.fixture
def holding_out(asking: Configured, tmp_path_factory: pytest.TempPathFactory) -> Population:
    """Return six people of thirty texts each, which go through the words in different places."""
    words = shipped_vocabulary(50).words[2:]
    rows = [
        {"user": f"user {k}", "text": " ".join(words[(7 * k + text + n) % 48] for n in range(3))}
        for k in range(6)
        for text in range(30)
    ]
    path = tmp_path_factory.mktemp("texts") / "rows.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return build_population(asking()[0], path)


def test_clients_are_asked_on_a_tenth_that_is_neither_trained_on_nor_scored_at_the_end(
    holding_out: Population,
) -> None:
    # Thirty texts of three words and an <eos>: 24 to train on, three to be asked on, three for the
    # end.
    parts = (holding_out.clients, holding_out.own_valid, holding_out.own_test)
    assert [[len(stream) for stream in part.values()] for part in parts] == [
        [96] * 6,
        [12] * 6,
        [12] * 6,
    ]
    typed = as_text(holding_out).own_typed
    assert [len(sentences) for sentences in typed.values()] == [3] * 6


@pytest.mark.slow
def test_the_best_model_is_kept_by_what_clients_count(
    asking: Configured, holding_out: Population, tmp_path: Path
) -> None:
    config, tables = asking()

    final = run_simulation(config, tables, holding_out, tmp_path, HERE)

    rows = read_metrics(tmp_path)
    found = {row["round"]: float(row["valid_perplexity"] or 0) for row in rows}
    assert list(found) == [1, 2, 3, 4]
    # 50 words; a model that is noised with as much as its clip is about as good as a guess.
    assert all(20 < perplexity < 200 for perplexity in found.values())
    assert final["model_round"] == min(found, key=lambda number: found[number])
    store = open_store(StoreSettings().rooted(tmp_path))
    # Paid for before the round that it measures is recorded.
    assert ledger_events(store, run_of(tmp_path)) == [EVALUATED, EVENT] * 4
    assert [entry.round_number for entry in ledger_entries(store)] == [1, 1, 2, 2, 3, 3, 4, 4]
    store.close()


@pytest.mark.slow
def test_a_run_stops_when_noised_figures_get_no_better_and_goes_on_after_a_kill(
    asking: Configured, holding_out: Population, tmp_path: Path
) -> None:
    config, tables = asking(convergence={"patience": 1, "least_improvement": 0.9})
    with pytest.raises(RunKilledError):
        run_simulation(config, tables, holding_out, tmp_path, HERE._replace(reporter=StopsAfter(1)))

    final = run_simulation(config, tables, holding_out, tmp_path, HERE)

    assert final["round"] == 2
    store = open_store(StoreSettings().rooted(tmp_path))
    assert ledger_events(store, run_of(tmp_path)) == [EVALUATED, EVENT] * 2
    store.close()


@pytest.mark.slow
def test_coins_draw_them_where_they_draw_the_cohort(
    asking: Configured, holding_out: Population, tmp_path: Path
) -> None:
    noise = QUIET | {"noise_multiplier": 2.0}
    config, tables = asking(rounds=SAMPLED, evaluation={**ASKED, "quorum": 1, "noise": noise})

    run_simulation(config, tables, holding_out, tmp_path, HERE)

    coins = SecretCoinFlips(sampling_rate=0.5, population_size=6, slot_count=6)
    store = open_store(StoreSettings().rooted(tmp_path))
    events = ledger_events(store, run_of(tmp_path))
    store.close()
    assert events[0] == EvaluationRelease(
        noise_multiplier=2.0, adjacency="zero-out", sampling=coins
    )
    assert len(events) == 4


@pytest.mark.slow
def test_too_few_clients_are_not_asked_and_nothing_is_paid(
    asking: Configured, holding_out: Population, tmp_path: Path
) -> None:
    # Six clients, three of them in the round: four others are not there.
    config, tables = asking(evaluation={**ASKED, "cohort_size": 4})

    run_simulation(config, tables, holding_out, tmp_path, HERE)

    assert all("valid_perplexity" not in row for row in read_metrics(tmp_path))
    store = open_store(StoreSettings().rooted(tmp_path))
    assert ledger_events(store, run_of(tmp_path)) == [EVENT] * 4
    store.close()


def test_clients_without_examples_of_their_own_cannot_be_asked(
    asking: Configured, population: Population, tmp_path: Path
) -> None:
    config, tables = asking()
    with pytest.raises(PopulationError, match="hold out examples of their own"):
        run_simulation(config, tables, population, tmp_path, HERE)
    with pytest.raises(ValueError, match=r'set data\.split = "by-user-time"'):
        asking(data={"dataset": "manual", "partition": "users"})
    # Of pictures nothing is held out to be asked on.
    with pytest.raises(ValueError, match='and task = "image_classification"'):
        asking(
            task="image_classification",
            data={"dataset": "digits", "partition": "iid", "client_count": 6},
            model=read_tables("fedtp-digits")["model"],
            vocabulary=None,
        )
