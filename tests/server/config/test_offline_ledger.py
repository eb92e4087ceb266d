"""What the coordinator writes and plans, ``sotto-privacy`` reads the same without it."""

from pathlib import Path

import pytest
from sqlalchemy import insert, update

from privacy.accounting.accountant import reports
from privacy.accounting.events import LocalRelease
from privacy.accounting.ledger_chain import LedgerError, verify_chain
from privacy.accounting.ledger_file import LedgerFile, read_ledger
from privacy.accounting.tally import tally
from privacy.cli import main
from privacy.commands.federation_file import read_tables, tally_of_run
from privacy.noise.plan_events import budget_of, event_of, fixed_slot_count
from server.config.evaluation_rules import coming_evaluations
from server.config.federation import parse_config, preset_names, preset_text
from server.config.store import StoreSettings
from server.operating.ledger_report import ledger_as_json
from server.records.ledger import ledger_entries, prepare_entry, write_entry
from server.records.store import Store, open_store
from server.records.tables import ledger, runs

RUN = "ab" * 16

GUARANTEE = """
clipping_norm = 1.0
noise_multiplier = 1.5
delta = 1e-3
epsilon_budget = 8.0
"""
CENTRAL = GUARANTEE + 'mode = "central"\nadjacency = "zero-out"\n'
TREES = (
    GUARANTEE + 'mode = "ftrl"\nadjacency = "replace-one"\nmin_separation = 3\n'
    "max_participation = 2\nrestart_rounds = 4\n"
)
SAMPLED = """
selection = "sampled"
participation_rate = 0.1
population_size = 200
close_early = false
"""

DEVICES = """
[evaluation]
kind = "devices"
cohort_size = 20
every_rounds = 3
noise = { noise_multiplier = 3.0, token_cap = 100, loss_cap = 10.0 }
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store of one run with three entries in its ledger."""
    store = open_store(StoreSettings(url=f"sqlite:///{tmp_path}/store.db"))
    with store.write() as connection:
        connection.execute(
            insert(runs).values(run=RUN, seed=1, schema_sha256=bytes(32), created_at=0.0)
        )
    for number in (1, 2, 3):
        entry = prepare_entry(
            store,
            LocalRelease(noise_multiplier=2.0),
            run=RUN,
            round_number=number,
            now=100.0 - number,
        )
        with store.write() as connection:
            write_entry(connection, entry)
    return store


def test_a_stores_ledger_is_read_without_the_coordinator(store: Store, tmp_path: Path) -> None:
    read = read_ledger(tmp_path / "store.db")

    assert read.run == RUN
    assert read.entries == ledger_entries(store)
    assert [entry.clock_set_back_ms for entry in read.entries] == [0, 1000, 1000]


@pytest.mark.parametrize("promised", [True, False])
def test_what_the_coordinator_exports_is_accounted_for_without_it(
    promised: bool, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = ledger_entries(store)
    events = verify_chain(entries, run=RUN)
    exported = tmp_path / "ledger.json"
    exported.write_text(
        ledger_as_json(LedgerFile(RUN, entries), reports(events, 1e-5) if promised else None)
    )

    status = main(["epsilon", "--ledger", str(exported), "--delta", "1e-5", "--run", RUN])

    assert status == 0
    assert "over 3 releases" in capsys.readouterr().out


def test_an_edited_store_is_found_out_offline(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with store.write() as connection:
        connection.execute(
            update(ledger)
            .where(ledger.c.sequence == 2)
            .values(event=b'{"event":"local","noise_multiplier":9.0}')
        )

    status = main(["epsilon", "--ledger", str(tmp_path / "store.db"), "--delta", "1e-5"])

    assert status == 1
    assert "ledger entry 2 was changed" in capsys.readouterr().err


def test_a_folder_without_a_store_says_what_to_give_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["epsilon", "--ledger", str(tmp_path / "none"), "--delta", "1e-5"])
    assert status == 1
    capsys.readouterr()

    status = main(["epsilon", "--ledger", str(tmp_path), "--delta", "1e-5"])

    assert status == 1
    told = capsys.readouterr().err
    assert f"{tmp_path} must hold store.sqlite" in told
    assert f"sotto-server ledger {tmp_path} --json" in told


def test_text_written_over_bytes_is_found_out(store: Store, tmp_path: Path) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE ledger SET event = 'text' WHERE sequence = 2")

    with pytest.raises(LedgerError, match="ledger entry 2 was changed"):
        verify_chain(read_ledger(tmp_path / "store.db").entries, run=RUN)


def federation(privacy: str, rounds: str) -> str:
    return f"""
seed = 1
[model]
family = "gru_lm"
vocabulary_size = 100
hidden_size = 2
[vocabulary]
name = "english-10k"
size = 100
[training]
learning_rate = 0.5
batch_size = 2
bptt_steps = 3
[privacy]
{privacy}
[aggregation]
rule = "attentive"
[rounds]
cap = 10
quorum = 1
deadline_s = 10.0
{rounds}
"""


@pytest.mark.parametrize(
    "text",
    [
        *(preset_text(name) for name in preset_names()),
        federation(CENTRAL, "cohort_size = 5"),
        federation(CENTRAL, SAMPLED),
        federation(CENTRAL, SAMPLED + "cohort_size = 60"),
        federation(TREES, "cohort_size = 5"),
        federation(CENTRAL, "cohort_size = 5" + DEVICES),
        federation(CENTRAL, SAMPLED + DEVICES),
        federation(TREES, "cohort_size = 5" + DEVICES),
        federation(GUARANTEE + 'mode = "local"', "cohort_size = 5"),
        federation(
            'mode = "paper"\nrandomisation_magnitude = 0.1\nclipping_norm = 1.0',
            "cohort_size = 5",
        ),
    ],
)
def test_a_plan_means_the_same_to_the_coordinator_and_to_the_command(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text)
    config, tables = parse_config(text, "the test's"), read_tables(path)

    events = [
        event_of(number, config.rounds, config.privacy)
        for number in range(1, config.rounds.cap + 1)
    ]
    measured = coming_evaluations(
        config.evaluation, config.rounds, config.privacy, range(1, config.rounds.cap + 1)
    )

    budget = budget_of(config.privacy)
    assert tally_of_run(tables) == tally([*events, *measured])
    assert tables.budget == budget
    if budget is not None:
        assert tables.slot_count == fixed_slot_count(config.rounds, config.privacy)
    assert tables.aggregation.rule == type(config.aggregation).__struct_config__.tag
    strength = getattr(config.aggregation, "attention_strength", None)
    assert strength in (None, tables.aggregation.attention_strength)
    assert tables.aggregation.server_step_size == config.aggregation.server_step_size
