"""A federation of clients with sequences learns the rule that no client has pairs enough for."""

from pathlib import Path

import pytest

from simulation.config.overrides import parse_override
from simulation.config.simulation import config_from, read_tables, with_settings
from simulation.figures.metrics import read_metrics
from simulation.population.dealing import build_population
from simulation.runs.runner import RunOptions, run_simulation

SMALL = (
    "data.client_count=4",
    "data.pairs_per_client=48",
    "model.context_size=5",
    "model.symbol_count=8",
    "rounds={cap=4, cohort_size=3, quorum=2, deadline_s=60.0}",
    "training.local_epochs=6",
    "training.learning_rate=0.006",
)


@pytest.mark.slow
def test_clients_learn_to_translate_unseen_sequences_together(tmp_path: Path) -> None:
    settings = [parse_override(text) for text in SMALL]
    tables = with_settings(read_tables("seq2seq-translate"), settings)
    config = config_from(tables, "test")
    population = build_population(config, None)

    final = run_simulation(config, tables, population, tmp_path, RunOptions())

    by_round = [float(row["exact_match"] or 0) for row in read_metrics(tmp_path)]
    # Three or four of five symbols, then the end: a guess is right in one of 5^3 cases.
    assert by_round[0] < 0.25
    assert by_round[-1] == final["exact_match"]
    assert by_round[-1] > 0.35
    assert {"exact_match_clients_mean", "exact_match_clients_worst_decile"} <= final.keys()
