"""Finished runs of a table stay, whatever a kill leaves behind them."""

import argparse
import shutil
from pathlib import Path

import pytest

from benchmarks.tables.arguments import Share
from benchmarks.tables.definition import Row, TableDefinition
from benchmarks.tables.maker import Maker, with_curve
from benchmarks.tables.records import (
    RecordsError,
    RunRecord,
    append_record,
    find_record,
    read_records,
)
from benchmarks.tables.report import write_report

TABLE = TableDefinition(
    title="Two rows",
    preset="fedtp-digits",
    rows=(
        Row("FedAvg", ('personalisation={method="global"}',)),
        Row("κ = -0.5", ('aggregation={rule="attentive", attention_strength=-0.5}',)),
    ),
    minutes=1,
    figures=("accuracy",),
    curve=None,
    references=(),
    settings=(
        'personalisation={method="global"}',
        'privacy={mode="none", clipping_norm=2.0}',
        "rounds={cap=1, cohort_size=2, quorum=1, deadline_s=600.0}",
        "data.client_count=10",
        "training.local_epochs=1",
    ),
)


def record(row: str, seed: int, rate: float = 0.1) -> RunRecord:
    return RunRecord(
        row=row,
        seed=seed,
        configuration={"training": {"learning_rate": rate}},
        final={"accuracy": 0.1 + seed},
        rounds=[{"round": 1, "accuracy": None}],
    )


def make(folder: Path) -> None:
    arguments = argparse.Namespace(
        data=None,
        runs=folder / "runs",
        work=folder / "work",
        out=folder / "out",
        workers=1,
        together=1,
        device="cpu",
        share=Share(),
        rounds=None,
        engine="local",
        address=None,
    )
    maker = Maker(arguments, "benchmarks.test", write_report, with_curve)
    with maker.under_way({"two": TABLE}):
        maker.make("two", TABLE)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "t.jsonl"
    records = [record("κ = -0.5", 1), record("κ = -0.5", 2)]

    for one in records:
        append_record(path, one)

    assert read_records(path) == records
    assert find_record(path, "κ = -0.5", 2, records[1].configuration) == records[1]
    assert find_record(path, "κ = 0.5", 2, records[1].configuration) is None


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_a_kill_cut_off_is_dropped_and_made_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "t.jsonl"
    append_record(path, record("a", 1))
    append_record(path, record("b", 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])

    assert read_records(path) == [record("a", 1)]
    append_record(path, record("b", 1))

    assert path.read_bytes() == whole


def test_a_damaged_line_that_no_kill_explains_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    append_record(path, record("a", 1))
    path.write_bytes(b'{"row":\n' + path.read_bytes())

    with pytest.raises(RecordsError, match=r"t\.jsonl:1 is no record"):
        read_records(path)


def test_a_run_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    append_record(path, record("a", 1, rate=0.1))

    with pytest.raises(RecordsError, match="'a' with seed 1 under another configuration"):
        find_record(path, "a", 1, record("a", 1, rate=0.2).configuration)


@pytest.mark.slow
def test_a_table_is_made_again_from_its_records_alone(tmp_path: Path) -> None:
    make(tmp_path)
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    records = tmp_path / "runs" / "two.jsonl"
    lines = records.read_bytes()
    shutil.rmtree(tmp_path / "work")

    make(tmp_path)

    assert records.read_bytes() == lines
    assert not (tmp_path / "work").exists()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == written


@pytest.mark.slow
def test_a_run_whose_line_was_cut_off_is_not_trained_again_where_its_folder_stays(
    tmp_path: Path,
) -> None:
    make(tmp_path)
    records = tmp_path / "runs" / "two.jsonl"
    lines = records.read_bytes()
    records.write_bytes(lines[:-40])

    make(tmp_path)

    assert records.read_bytes() == lines
    names = {path.name for path in (tmp_path / "work" / "two").iterdir()}
    assert {name.rsplit("-", 1)[0] for name in names} == {"FedAvg", "--0.5"}
