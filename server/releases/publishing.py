"""Release a round's model: files first, then one transaction, then the name.

Before the transaction nothing has left the coordinator, so a crash may close the round again; after
it the model is only published from the flushed files. The transaction checks that rounds rise by
one and that each release names the digest of the one before.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, delete, select, update

from models.plan.release_record import Metric, ReleaseRecord
from privacy.identities.party import Identity
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from server.devices.clients import count_participation
from server.records.attempts import end_attempt, this_attempt
from server.records.failpoints import UNARMED, Failpoint, Failpoints
from server.records.ledger import is_drawn_by_coins, is_newest, write_entry
from server.records.store import Store
from server.records.tables import attempts, clients, contributions, releases
from server.releases.files import NewRelease, ReleaseFolder

NO_PREVIOUS = bytes(32)
"""Hash of the release before the initial parameters."""


class ReleaseChainError(RuntimeError):
    """Raised when a release does not follow on the one before it."""


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """A release as the store knows it; round 0 has the initial parameters.

    Attributes:
        parameters_sha256: Digest of the parameters, 32 bytes.
        contribution_count: Updates in it, or places where no noise covers how many updates counted
            (``central``, ``ftrl``); None if that is a secret of the coins.
        duration_s: Seconds from the opening of the attempt to the release; to its deadline if coins
            drew the cohort, since the rest grows with how many came.
        is_published: Whether its files have their name.
        term: Term in which its files were written; 0 where one coordinator alone can serve.
        recorded_at: When it was released, seconds since 1970 UTC.
    """

    round_number: int
    attempt: int
    parameters_sha256: bytes
    contribution_count: int | None
    duration_s: float
    metrics: dict[str, Metric]
    is_published: bool
    term: int = 0
    recorded_at: float = 0.0


def release_round(
    store: Store | None,
    folder: ReleaseFolder,
    new: NewRelease,
    signer: Identity | None,
    *,
    opened_at: float,
    now: float,
    best_round: int | None = None,
    keep: Collection[int] | None = None,
    took_part: Sequence[str] = (),
    failpoints: Failpoints = UNARMED,
) -> ReleaseRecord:
    """Write, record and publish the model of a round; times are seconds since 1970 UTC.

    ``store`` is None for a run that keeps no records, such as a simulation that promises nothing.
    The other arguments are as in ``record_release`` and ``publish_release``.

    Raises:
        CodecError: If the parameters do not fit the plan's model or are not finite.
        ReleaseChainError: If the round or its base is not the one that follows the last release.
        OSError: If the disk is full; the round can be closed again.
    """
    record = folder.build(new, signer)
    if store is not None:
        record_release(
            store,
            new,
            record,
            opened_at=opened_at,
            now=now,
            took_part=took_part,
            failpoints=failpoints,
        )
    publish_release(
        store,
        folder,
        new.round_number,
        now=now,
        best_round=best_round,
        keep=keep,
        failpoints=failpoints,
    )
    return record


def record_release(
    store: Store,
    new: NewRelease,
    record: ReleaseRecord,
    *,
    opened_at: float,
    now: float,
    took_part: Sequence[str] = (),
    failpoints: Failpoints = UNARMED,
) -> float:
    """Make the round have happened in one transaction and return its ``ReleaseSummary.duration_s``.

    ``record`` describes the release's files, already flushed. ``took_part`` names clients whose
    updates were never stored, as in a simulation.

    Raises:
        LedgerError: If the release's entry does not follow the newest of the ledger.
        ReleaseChainError: If the round or its base is not the one that follows the last release.
    """
    failpoints.reach(Failpoint.NOISED)
    with store.write() as connection:
        _check_chain(connection, new)
        if new.entry is not None and not is_newest(connection, new.entry):
            write_entry(connection, new.entry)
        secret = new.entry is not None and is_drawn_by_coins(new.entry)
        ended_at = (_planned_close(connection, new) if secret else None) or now
        count = _settle_contributions(connection, new, secret=secret)
        count_participation(connection, clients.c.name.in_(took_part), new.round_number)
        end_attempt(connection, new.round_number, new.attempt, state="released", now=now)
        connection.execute(
            releases.insert().values(
                round_number=new.round_number,
                attempt=new.attempt,
                parameters_sha256=bytes.fromhex(record.parameters_sha256),
                previous_sha256=new.previous_sha256,
                contribution_count=count,
                duration_s=ended_at - opened_at,
                metrics=msgspec.json.encode(new.metrics).decode(),
                recorded_at=now,
                ledger_sha256=None if new.entry is None else new.entry.sha256,
                term=store.tenure.term or None,
            )
        )
    failpoints.reach(Failpoint.RELEASE_RECORDED)
    return ended_at - opened_at


def publish_release(
    store: Store | None,
    folder: ReleaseFolder,
    round_number: int,
    *,
    now: float,
    best_round: int | None = None,
    keep: Collection[int] | None = None,
    term: int | None = None,
    failpoints: Failpoints = UNARMED,
) -> None:
    """Give a recorded release its name; repeating does no harm.

    ``best_round`` is where ``best`` points from now on; None leaves it. ``keep`` are the rounds
    whose files stay beside this one's, ``latest`` and ``best``; None keeps all. ``term`` is that in
    which the files were written, if not in this one.

    Raises:
        ReleaseError: If its files are gone.
    """
    folder.publish(round_number, term)
    if store is not None:
        with store.write() as connection:
            connection.execute(
                update(releases)
                .where(releases.c.round_number == round_number, releases.c.published_at.is_(None))
                .values(published_at=now)
            )
    failpoints.reach(Failpoint.PUBLISHED)
    if best_round is not None:
        folder.point("best", best_round)
    if keep is not None:
        folder.prune({round_number, *keep})


def add_metrics(store: Store, round_number: int, metrics: dict[str, Metric]) -> None:
    """Add figures that came after the release, such as an evaluation by devices.

    Raises:
        LookupError: If the round was not released.
    """
    with store.write() as connection:
        row = connection.execute(_of(round_number)).first()
        if row is None:
            raise LookupError(f"round {round_number} was not released")
        merged = {**msgspec.json.decode(row.metrics), **metrics}
        connection.execute(
            update(releases)
            .where(releases.c.round_number == round_number)
            .values(metrics=msgspec.json.encode(merged).decode())
        )


def last_release(store: Store) -> ReleaseSummary | None:
    """Return the newest release, or None before the initial parameters."""
    with store.read() as connection:
        row = connection.execute(
            select(releases).order_by(releases.c.round_number.desc()).limit(1)
        ).first()
    return None if row is None else _summary(row)


def list_releases(store: Store, first_round: int = 1) -> list[ReleaseSummary]:
    """Return every release from a round on, oldest first."""
    with store.read() as connection:
        rows = connection.execute(
            select(releases)
            .where(releases.c.round_number >= first_round)
            .order_by(releases.c.round_number)
        ).all()
    return [_summary(row) for row in rows]


def _check_chain(connection: Connection, new: NewRelease) -> None:
    row = connection.execute(
        select(releases.c.round_number, releases.c.parameters_sha256)
        .order_by(releases.c.round_number.desc())
        .limit(1)
    ).first()
    expected = (0, NO_PREVIOUS) if row is None else (row.round_number + 1, row.parameters_sha256)
    if (new.round_number, new.previous_sha256) != expected:
        raise ReleaseChainError(
            f"the next release must be round {expected[0]} on {expected[1].hex()[:16]}…, "
            f"got round {new.round_number} on {new.previous_sha256.hex()[:16]}…"
        )


def _planned_close(connection: Connection, new: NewRelease) -> float | None:
    """Return the deadline of a release's attempt, seconds since 1970 UTC; None in a simulation."""
    which = this_attempt(new.round_number, new.attempt)
    deadline_ms = connection.execute(select(attempts.c.deadline_ms).where(which)).scalar()
    return None if deadline_ms is None else float(deadline_ms) / 1000


def _settle_contributions(connection: Connection, new: NewRelease, *, secret: bool) -> int | None:
    """Mark and count the attempt's updates; under a guarantee no row says who took part."""
    here = this_attempt(new.round_number, new.attempt, contributions)
    updated = connection.execute(
        update(contributions)
        .where(here, contributions.c.state == "committed")
        .values(state="aggregated", example_count=None)
    )
    aggregated = and_(here, contributions.c.state == "aggregated")
    if not secret:
        names = select(contributions.c.client).where(aggregated)
        count_participation(connection, clients.c.name.in_(names), new.round_number)
    if new.plan.privacy.guarantees_privacy:
        # Also what was set aside, and what earlier attempts at the round were sent.
        connection.execute(
            delete(contributions).where(contributions.c.round_number == new.round_number)
        )
    if isinstance(new.plan.privacy, CentralNoise | TreeNoise):
        return None if secret else new.plan.cohort_size
    return updated.rowcount


# Any: the statement's and the row's types are the table's.
def _of(round_number: int) -> Any:
    return select(releases).where(releases.c.round_number == round_number)


def _summary(row: Row[Any]) -> ReleaseSummary:
    return ReleaseSummary(
        row.round_number,
        row.attempt,
        row.parameters_sha256,
        row.contribution_count,
        row.duration_s,
        msgspec.json.decode(row.metrics),
        row.published_at is not None,
        row.term or 0,
        row.recorded_at,
    )
