"""Benchmarks are run by hand, so nothing else would notice that one can no longer be started."""

import importlib
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.tables import (
    attention,
    compression,
    keyboard,
    masked,
    personalisation,
    robustness,
    speech,
)
from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.maker import configured
from models.text.vocabulary import shipped_vocabulary
from simulation.rounds.attacks import backdoor_words

NAMES = sorted(
    path.stem for path in Path(str(benchmarks.__file__)).parent.glob("[a-z]*.py") if path.stem
)
TABLES: dict[str, TableDefinition] = {
    **attention.TABLES,
    **compression.TABLES,
    **keyboard.TABLES,
    **masked.TABLES,
    **personalisation.TABLES,
    **personalisation.PAPER_TABLES,
    **robustness.TABLES,
    **speech.TABLES,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_starts_and_has_a_short_form(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit) as ended:
        module.main()

    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--quick" in said
    assert "--json" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_can_be_configured(name: str) -> None:
    table = TABLES[name]

    for row in table.rows:
        config, _ = configured(table, *row.settings)
        assert config.rounds.cap >= 1
        if config.attack is not None and config.attack.kind == "backdoor":
            assert config.vocabulary is not None
            assert backdoor_words(config.attack, shipped_vocabulary(config.vocabulary.size))

    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", TABLES)
def test_a_run_that_two_tables_share_is_one_run(name: str) -> None:
    table = TABLES[name]

    for row in table.rows:
        if row.run is not None:
            other = TABLES[row.run[0]]
            theirs = next(their for their in other.rows if their.name == row.run[1])
            assert configured(other, *theirs.settings) == configured(table, *row.settings)
            assert set(row.seeds) <= set(theirs.seeds)
