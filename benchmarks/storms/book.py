"""Count what became of every attempt and every acknowledged update, from both ends.

A device's log says what it was acknowledged; the coordinator's store says what it counted.
"""

import re
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import select

from benchmarks.parts.deployment import Deployment
from server.records.store import open_store
from server.records.tables import attempts, contributions, releases

_DELIVERED = re.compile(r"round (\d+): update delivered")


@dataclass(frozen=True)
class Book:
    """Both ends' accounts at the end of a run.

    Attributes:
        attempts: Attempts by their state; an aborted one with its reason.
        acknowledged: Updates that devices were told were counted.
        acknowledged_lost: Those of which the store has no row, and those of a released attempt
            that are not in its sum.
        expired: Updates of attempts that missed their quorum; they are sent again with the next.
    """

    attempts: Counter[str]
    acknowledged: int
    acknowledged_lost: int
    expired: int


def read_book(deployment: Deployment, device_count: int) -> Book:
    """Read the devices' logs first and the store afterwards, so that no row can be missing yet."""
    told = {
        (f"device-{number + 1:04d}", int(found))
        for number in range(device_count)
        for found in _DELIVERED.findall(deployment.device_log(number).read_text())
    }
    store = open_store(deployment.config.store)
    try:
        with store.read() as connection:
            tried = connection.execute(select(attempts)).all()
            counted = connection.execute(select(contributions)).all()
            released = connection.execute(select(releases)).all()
    finally:
        store.close()
    attempt_of = {row.round_number: row.attempt for row in released}
    kept = {(row.client, row.round_number) for row in counted}
    left_out = sum(
        row.state != "aggregated" and attempt_of.get(row.round_number) == row.attempt
        for row in counted
    )
    return Book(
        attempts=Counter(_ended(row.state, row.reason) for row in tried),
        acknowledged=len(told),
        acknowledged_lost=len(told - kept) + left_out,
        expired=sum(row.state == "expired" for row in counted),
    )


def _ended(state: str, reason: str | None) -> str:
    return state if reason is None else f"{state}: {reason}"
