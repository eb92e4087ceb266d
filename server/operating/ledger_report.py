"""Show the privacy ledger: as a table for people, as JSON for scripts."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from rich.console import Console
from rich.table import Table

from privacy.accounting.accountant import PrivacyReport
from privacy.accounting.ledger_chain import LedgerEntry
from privacy.accounting.ledger_file import LedgerFile, export_ledger


def ledger_as_json(ledger: LedgerFile, spent: PrivacyReport | None) -> str:
    """Return what ``sotto-privacy epsilon --ledger`` reads: the ledger, and what it spent."""
    figures = None if spent is None else msgspec.to_builtins(spent)
    return export_ledger(ledger.run, ledger.entries, spent=figures)


def print_ledger(entries: Sequence[LedgerEntry], spent: PrivacyReport | None) -> None:
    """Print the ledger as a table, and what it spent below."""
    table = Table("entry", "round", "UTC", "event", "head")
    for entry in entries:
        table.add_row(
            str(entry.sequence),
            str(entry.round_number),
            datetime.fromtimestamp(entry.recorded_ms / 1000, UTC).isoformat(timespec="seconds"),
            entry.event.decode(),
            entry.sha256.hex()[:12],
        )
    console = Console()
    console.print(table)
    if spent is None:
        console.print("no privacy guarantee")
    else:
        console.print(f"epsilon {spent.epsilon:.4g} at delta {spent.delta:g}")
