"""A privacy ledger read offline, from a coordinator's SQLite store or from its JSON export.

Neither needs the coordinator, its settings or its keys: anybody with the file can check the chain
and compute epsilon again. The store is opened for reading only.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from privacy.accounting.ledger_chain import LedgerEntry, LedgerError, NotedHead, check_types
from privacy.foundation.strict_json import read_json

_NOTING, _NOTES = ("releases", "attempts"), "ledger_sha256"
STORE_NAME = "store.sqlite"
"""File of a federation's store in its folder, unless its settings name another."""

_SQLITE_MAGIC = b"SQLite format 3\0"


class LedgerFile(NamedTuple):
    """An unchecked ledger, oldest entry first: give both to `ledger_chain.verify_chain`.

    The run, 32 hex digits, is the one that the file names. ``noted`` is what a store notes beside
    its ledger, for `ledger_chain.check_end`; an export has none.
    """

    run: str
    entries: list[LedgerEntry]
    noted: tuple[NotedHead, ...] = ()


Spent = dict[str, float | str | None]
"""Figures of a `privacy.accounting.accountant.PrivacyReport`; an infinite one is null in JSON."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `LedgerEntry` in the export; digests in hex, the event as its canonical JSON."""

    sequence: int
    round_number: int
    event: str
    recorded_ms: int
    clock_set_back_ms: int
    previous_sha256: str
    sha256: str


class _Export(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    run: str
    entries: list[_Entry]
    spent: Spent | None = None


_FORMAT = 1
_RUN_BYTES = 16


def export_ledger(run: str, entries: Sequence[LedgerEntry], *, spent: Spent | None = None) -> str:
    """Return a ledger, oldest entry first, as JSON that `read_ledger` takes.

    ``spent`` is what the entries cost, for people who read the JSON; `read_ledger` leaves it out,
    so that a reader computes it again.
    """
    rows = [
        {
            **entry._asdict(),
            "event": entry.event.decode(),
            "previous_sha256": entry.previous_sha256.hex(),
            "sha256": entry.sha256.hex(),
        }
        for entry in entries
    ]
    text = msgspec.json.encode({"format": _FORMAT, "run": run, "entries": rows, "spent": spent})
    return msgspec.json.format(text, indent=1).decode()


def read_ledger(path: Path) -> LedgerFile:
    """Read a federation's folder, its SQLite store, or its JSON export; the chain is not checked.

    Raises:
        LedgerError: If it is none of them, or a folder whose store is elsewhere.
        OSError: If it cannot be read.
    """
    if path.is_dir():
        folder, path = path, path / STORE_NAME
        if not path.exists():
            raise LedgerError(
                f"{folder} must hold {STORE_NAME}; where the federation keeps its store in another "
                f"place, give that file, or what `sotto-server ledger {folder} --json` prints"
            )
    with path.open("rb") as file:
        is_store = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
    return _read_store(path) if is_store else _read_export(path)


def _read_store(path: Path) -> LedgerFile:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as store:
            runs = store.execute("SELECT run FROM runs").fetchall()
            columns = ", ".join(LedgerEntry._fields)
            rows = store.execute(
                f"SELECT {columns} FROM ledger ORDER BY sequence"  # noqa: S608 - our own names
            ).fetchall()
            noted = [row for table in _NOTING for row in _noted_rows(store, table)]
    # The others: the schema of a damaged store need not be UTF-8, and sizes in it ask for too much.
    except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
        told = str(error) or "it is damaged"
        raise LedgerError(f"{path} holds no ledger of a coordinator: {told}") from None
    if len(runs) != 1:
        raise LedgerError(f"{path} must belong to one run, got {len(runs)}")
    try:
        heads = msgspec.convert(noted, tuple[NotedHead, ...], builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise LedgerError(f"what {path} notes beside its ledger was changed: {error}") from None
    entries = [check_types(row) for row in rows]
    return LedgerFile(_checked_run(runs[0][0]), entries, heads)


def _noted_rows(store: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    if (_NOTES,) not in store.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall():
        return []  # An older sotto's.
    return store.execute(
        f"SELECT round_number, {_NOTES} FROM {table} WHERE {_NOTES} IS NOT NULL"  # noqa: S608 - our own names
    ).fetchall()


def _read_export(path: Path) -> LedgerFile:
    try:
        export = read_json(path, _Export)
        entries = [
            LedgerEntry(*msgspec.structs.astuple(entry))._replace(
                event=entry.event.encode(),
                previous_sha256=bytes.fromhex(entry.previous_sha256),
                sha256=bytes.fromhex(entry.sha256),
            )
            for entry in export.entries
        ]
    except (msgspec.MsgspecError, ValueError) as error:
        raise LedgerError(f"{path} is no ledger: {error}") from None
    if export.format != _FORMAT:
        raise LedgerError(f"{path} must have ledger format {_FORMAT}, got {export.format}")
    return LedgerFile(run=_checked_run(export.run), entries=entries)


def _checked_run(run: object) -> str:
    try:
        if isinstance(run, str) and len(bytes.fromhex(run)) == _RUN_BYTES:
            return run
    except ValueError:
        pass
    raise LedgerError(f"run of a ledger must be 32 hex digits, got {run!r}")
