"""What a page of a federation is made from, without a federation."""

import math
from pathlib import Path

from privacy.accounting.accountant import PrivacyReport, Reports
from privacy.accounting.ledger_chain import LedgerEntry, next_entry
from privacy.accounting.ledger_file import LedgerFile
from privacy.noise.plan_events import budget_of, event_of
from server.config.federation import parse_config
from server.config.start_lines import promises
from server.operating.page import Account
from server.operating.report import StatusReport
from server.releases.publishing import ReleaseSummary
from tests.integration.federation import settings

RUN = "ab" * 16
DAY_S = 86_400.0
LOCAL = """
noise_multiplier = 3.0
delta = 1e-3
epsilon_budget = 50.0
"""
CENTRAL = LOCAL + 'adjacency = "zero-out"\n'


def release(number: int, **metrics: float | None) -> ReleaseSummary:
    """Return a release of one day each since 1970, at five in the morning, of seven updates."""
    at = number * DAY_S + 5 * 3600
    digest = number.to_bytes(32, "big")
    return ReleaseSummary(number, 0, digest, 7, 31.25, dict(metrics), True, recorded_at=at)


def account(
    *rounds: ReleaseSummary, mode: str = "none", folder: str = "/srv/fed", **facts: object
) -> Account:
    """Return an account of releases; ``facts`` are of its status."""
    more = {"none": "", "local": LOCAL, "central": CENTRAL}[mode]
    rule = 'rule = "mean"\nweighting = "equal"'
    text = settings(cap=20_000, more_privacy=more, rule=rule)
    text = text.replace('mode = "none"', f'mode = "{mode}"').replace("= 100.0\n", "= 1.0\n")
    config = parse_config(text, "the test's settings")
    entries: list[LedgerEntry] = []
    if mode != "none":
        for one in rounds:
            event = event_of(one.round_number, config.rounds, config.privacy)
            last, at = entries[-1] if entries else None, round(one.recorded_at * 1000)
            entries.append(
                next_entry(last, run=RUN, round_number=one.round_number, event=event, now_ms=at)
            )
    budget = budget_of(config.privacy)
    told: dict[str, object] = {
        **{"run": RUN, "is_running": True, "phase": "closing", "round_number": len(rounds) + 1},
        **{"is_paused": False, "guarantee": "", "personalisation": "global", "growth": ""},
        **{"enrolled_clients": 40, "connected_clients": 31, "software_version": "0.1.0"},
        **{"leased_clients": 9, "committed_clients": 5},
        **{"certificates_end_at": "2026-12-20", "issuer_ends_at": "2027-11-20"},
    }
    numbers = [one.round_number for one in rounds]
    return Account(
        config=config,
        folder=Path(folder),
        status=StatusReport(**(told | facts)),  # type: ignore[arg-type]  # each of its own type
        promises=promises(config),
        rounds=[release(0), *rounds],
        ledger=LedgerFile(RUN, entries),
        spent=None if budget is None else Reports(_spent(1.25, budget.delta), _spent(math.inf, 0)),
        update_bytes={number: 1000 + number for number in numbers} if mode == "none" else {},
        pointed={"latest": max(numbers, default=0), "best": min(numbers, default=None)},
        kept=[0, *numbers][-10:],
        now=0.0,
    )


def _spent(epsilon: float, delta: float) -> PrivacyReport:
    """Return a report of either onlooker; the accountants are asked elsewhere."""
    return PrivacyReport(
        onlooker="readers" if math.isfinite(epsilon) else "coordinator",
        epsilon=epsilon,
        delta=delta,
        epsilon_pld=epsilon,
        epsilon_prv=epsilon,
        rho=None,
        overflow=0.0,
        adjacency="zero-out",
    )
