"""A run's privacy on a page: what may be spent, what the ledger says was spent, how to check it.

Epsilon is computed again from the ledger by two accountants each time a page is made. Entries are
summed up by what they are; a day is told of each, and no time of day, from which one could guess
how many devices a round had to wait for.
"""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from models.pages.document import Html, element, facts, table
from privacy.accounting.accountant import PrivacyReport, Reports
from privacy.accounting.budget import PrivacyBudget
from privacy.accounting.ledger_chain import LedgerEntry, head_of
from privacy.accounting.ledger_file import LedgerFile
from privacy.accounting.onlookers import AGAINST, NOT_AGAINST_COORDINATOR

_MEANING = (
    "Whatever anybody concludes about one person from all that was released, they could have "
    "concluded, up to epsilon and delta, had that person's updates never counted. The smaller "
    "epsilon, the less can be told."
)
_MOST_KINDS = 40


def proof(
    ledger: LedgerFile,
    spent: Reports,
    budgets: Sequence[PrivacyBudget],
    *,
    path: str,
    export: Sequence[str] = (),
) -> Iterator[Html]:
    """Return the budgets of each onlooker, what was spent of them, the entries and the check.

    Args:
        ledger: Checked already.
        budgets: One at least.
        path: Where ``sotto-privacy epsilon --ledger`` finds the ledger.
        export: Command whose output goes there first, in words of a shell.
    """
    yield element("p", _MEANING)
    for report in spent:
        if math.isfinite(report.epsilon):
            yield from _spent(report, budgets)
    if not math.isfinite(spent.coordinator.epsilon):
        yield element("p", f"{NOT_AGAINST_COORDINATOR[0].upper()}{NOT_AGAINST_COORDINATOR[1:]}.")
    if not ledger.entries:
        yield element("p", "The ledger has no entry yet: nothing was released.")
        return
    yield element("h3", "The ledger")
    yield table(("what was released", "entries", "rounds", "days"), _kinds(ledger.entries), words=1)
    set_back = sum(entry.clock_set_back_ms > 0 for entry in ledger.entries)
    head = head_of(ledger.entries, ledger.run).hex()
    yield facts(
        [
            ("run", element("code", ledger.run)),
            ("entries", f"{len(ledger.entries)}, chained by SHA-256, unbroken"),
            ("head", element("code", head)),
            ("clock", f"set back before {set_back} entries" if set_back else ""),
        ]
    )
    yield element("p", "Anybody who has the ledger checks chain, head and epsilon with")
    check = ("sotto-privacy", "epsilon", "--ledger", path, "--delta", str(budgets[0].delta))
    lines = [f"{shlex.join(export)} > {shlex.quote(path)}"] if export else []
    lines.append(shlex.join([*check, "--run", ledger.run, "--head", head]))
    yield element("pre", element("code", "\n".join(lines)))
    yield element(
        "p",
        "Take the ledger together with this page: one that has grown since ends with another head. "
        "Every release names the head of its time in its signed record.",
    )


def _spent(report: PrivacyReport, budgets: Sequence[PrivacyBudget]) -> Iterator[Html]:
    words = f"{AGAINST[report.onlooker][0].upper()}{AGAINST[report.onlooker][1:]}"
    most = next((one.epsilon_budget for one in budgets if one.onlooker == report.onlooker), None)
    told = f"epsilon {report.epsilon:.4g} at delta {report.delta:g}"
    if most is None:
        yield element("p", element("b", words), f": {told} spent")
        return
    keeps = "kept" if report.epsilon <= most else "NOT kept: more was spent than promised"
    yield element(
        "p", element("b", words), f": {told} spent, of at most {most:g} promised: {keeps}"
    )
    bar = f'<meter min="0" max="{most:g}" value="{min(report.epsilon, most):.6g}"></meter>'
    left = max(0.0, most - report.epsilon)
    yield element("p", Html(bar), f" {left:.4g} left. {_basis(report)}")


def _basis(report: PrivacyReport) -> str:
    if report.epsilon_prv is not None and report.epsilon_pld is not None:
        pld, prv = report.epsilon_pld, report.epsilon_prv
        return (
            f"Computed again from the ledger now: PLD {pld:.4f}, second accountant PRV {prv:.4f}."
        )
    if report.epsilon_pld is None and report.rho is not None:
        return f"Computed again from the ledger now: rho {report.rho:.4g}, correlated noise."
    return "Computed again from the ledger now."


def _kinds(entries: Sequence[LedgerEntry]) -> Iterator[tuple[str, ...]]:
    kinds: dict[bytes, list[LedgerEntry]] = {}
    for entry in entries:
        kinds.setdefault(entry.event, []).append(entry)
    for event, alike in list(kinds.items())[-_MOST_KINDS:]:
        days = _span(*(_day(entry.recorded_ms) for entry in (alike[0], alike[-1])))
        rounds = _span(str(alike[0].round_number), str(alike[-1].round_number))
        yield _event_told(msgspec.json.decode(event)), str(len(alike)), rounds, days
    if len(kinds) > _MOST_KINDS:
        yield f"... and {len(kinds) - _MOST_KINDS} kinds before them", "", "", ""


def _event_told(event: Mapping[str, Any]) -> str:  # JSON values.
    """Return an event of the ledger in words, its kind first; what it leaves out is not said."""
    told = [str(event["event"])] if "event" in event else []
    for name, value in event.items():
        if name == "event":
            continue
        if isinstance(value, dict):
            told.append(f"{name} ({_event_told(value)})")
        elif value is not None:
            told.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(told)


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _day(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).date().isoformat()
