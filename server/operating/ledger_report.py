"""Show the privacy ledger: as a table for people, as JSON for scripts."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from rich.console import Console
from rich.table import Table

from privacy.accounting.accountant import Reports
from privacy.accounting.ledger_chain import LedgerEntry
from privacy.accounting.ledger_file import LedgerFile, Spent, export_ledger
from privacy.accounting.onlookers import Epsilons


def ledger_as_json(ledger: LedgerFile, spent: Reports | None) -> str:
    """Return what ``sotto-privacy epsilon --ledger`` reads: the ledger, and what it spent.

    The figures are those against readers; ``coordinator_epsilon`` is null where nothing is promised
    against the coordinator.
    """
    figures: Spent | None = None
    if spent is not None:
        figures = {
            **msgspec.to_builtins(spent.readers),
            "coordinator_epsilon": spent.coordinator.epsilon,
        }
    return export_ledger(ledger.run, ledger.entries, spent=figures)


def print_ledger(entries: Sequence[LedgerEntry], spent: Reports | None) -> None:
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
        readers, coordinator = spent
        told = Epsilons(readers.epsilon, coordinator.epsilon, readers.delta).told
        console.print(told, soft_wrap=True)
