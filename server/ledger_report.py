"""Show the privacy ledger: as a table for people, as JSON for scripts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from privacy.accountant import PrivacyReport
from privacy.ledger_chain import LedgerEntry


# Any: a JSON object.
def ledger_as_json(entries: Sequence[LedgerEntry], spent: PrivacyReport | None) -> dict[str, Any]:
    """Return the ledger as plain values; digests in hex, times in milliseconds since 1970 UTC."""
    return {
        "entries": [
            {
                **entry._asdict(),
                "event": msgspec.json.decode(entry.event),
                "previous_sha256": entry.previous_sha256.hex(),
                "sha256": entry.sha256.hex(),
            }
            for entry in entries
        ],
        "spent": None if spent is None else msgspec.to_builtins(spent),
    }


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
