"""Finished runs of a table, one line of JSON each in ``TABLE.jsonl``.

A line is appended whole and flushed. What follows the last newline was cut off by a kill: it is not
read, and the next line takes its place, so that run is made again.
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from simulation.figures.metrics import Figures, Value, read_metrics

Final = Mapping[str, Value]
"""Final figures of a run."""


class RecordsError(ValueError):
    """Raised when records cannot be used; the text names the file and what to do."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a finished run that a table needs.

    Attributes:
        final: Final figures; of a lost run those that it has, if any.
        rounds: Figures that the table reads of rounds, each row with its ``round``.
        more: Anything else that the table reads, as JSON knows it.
    """

    final: dict[str, Value]
    rounds: list[dict[str, Value]] = []
    more: dict[str, Any] = {}


class RunRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One line: a finished run, under the name of its row and its seed.

    Attributes:
        row: Name of the row in its table.
        seed: Seed of the run.
        configuration: The TOML tables of the run.
        final: As in the outcome, like the two that follow.
        rounds: See above.
        more: See above.
    """

    row: str
    seed: int
    configuration: dict[str, Any]  # TOML values.
    final: dict[str, Value]
    rounds: list[dict[str, Value]] = []
    more: dict[str, Any] = {}


def rounds_with(folder: Path, *names: str) -> list[dict[str, Value]]:
    """Return these figures of a run's rounds, without the rounds that have none of them."""
    rows: list[Figures] = read_metrics(folder)
    return [
        {"round": row["round"], **{name: row[name] for name in names if name in row}}
        for row in rows
        if any(name in row for name in names)
    ]


def find_record(path: Path, row: str, seed: int, configuration: dict[str, Any]) -> RunRecord | None:
    """Return the record of a run, or None if it has not been made.

    Args:
        path: File of the table's records.
        row: Name of the row.
        seed: Seed of the run.
        configuration: The TOML tables that the run has now.

    Raises:
        RecordsError: If a line cannot be read, or the run was made with other settings.
    """
    for record in read_records(path):
        if (record.row, record.seed) == (row, seed):
            if record.configuration != configuration:
                raise RecordsError(
                    f"{path} holds {row!r} with seed {seed} under another configuration; "
                    "give another --runs, or remove its line"
                )
            return record
    return None


def counted_before(final: Final) -> bool:
    """Return whether a run's recall took ``<eos>`` for a word; of a run of words."""
    has_recall = any("top3_recall" in name and final[name] is not None for name in final)
    return has_recall and not any(name.endswith("unknown_words") for name in final)


def check_one_kind(path: Path) -> None:
    """Check that a run of words may join a table's records.

    Raises:
        RecordsError: If recall of some was counted before words alone.
    """
    if any(counted_before(record.final) for record in read_records(path)):
        raise RecordsError(
            f"{path} holds runs whose recall was counted before words alone, and those of a new "
            "run cannot stand beside them; give another --runs, or remove the file"
        )


def read_records(path: Path) -> list[RunRecord]:
    """Return all records of a table, none if nothing was written.

    Raises:
        RecordsError: If a whole line is no record.
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(msgspec.json.decode(line, type=RunRecord))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecordsError(f"{path}:{number} is no record of a run: {error}") from None
    return records


def append_record(path: Path, record: RunRecord) -> None:
    """Append one record, as ``append_line`` does."""
    append_line(path, msgspec.json.encode(record))


def append_line(path: Path, line: bytes) -> None:
    """Append a line in the place of what a kill left of one, and flush it.

    Commands that write to one file wait for each other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
