"""Lead, or wait for it: one coordinator at a time among those that share a PostgreSQL.

A session of its own holds an advisory lock, which the database frees when the session ends. The
session asks once a second, and the database itself ends one that falls silent, as that of a process
that was stopped or of a machine that vanished. A leader that gets no answer counts by its own clock
and gives up before the database does. The holder raises the term, which every transaction of
``server.records.store`` compares.

A connection pool between them that lends sessions by the transaction cannot carry the lock. It is
noticed when the session's process changes; until then the term alone keeps two leaders apart.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, create_engine, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from server.config.store import StoreSettings
from server.records.store import SILENCE_MS, Store, StoreError
from server.records.tables import leadership
from server.records.tenure import LeadershipLostError, Tenure

BEAT_S = 1.0
PATIENCE_S = 4.0
"""Seconds after its last answered question at which a leader gives up, before the database does."""
# Any number that no other program uses in the same database, and not that of the writers' lock.
_LOCK = 0x736F74746F6C
_OLDEST = (14,)
# Goes on while the machine sleeps, which a stopped process's does in any case.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEAT = text("SELECT pg_backend_pid(), term, asked FROM leadership")
# A lock's number stands in two halves of 32 bits.
_IS_HELD = text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid = :high AND objid = :low"
).bindparams(high=_LOCK >> 32, low=_LOCK & 0xFFFFFFFF)
_CLOCK_THERE = text("SELECT extract(epoch FROM clock_timestamp())")


@dataclass(frozen=True)
class Leader:
    """The coordinator that leads; ``since`` is in Unix seconds by its own clock."""

    holder: str
    since: float
    term: int


class Leadership:
    """One process's candidacy, and its turn once it leads."""

    def __init__(
        self,
        settings: StoreSettings,
        store: Store,
        holder: str,
        *,
        on_lost: Callable[[str], None] = lambda _: None,
        on_asked: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare; ``holder`` names the process for others.

        ``on_lost`` is called with the reason, in any thread, at the first sign that the turn is
        over. ``on_asked`` is called with every new word that another process asks to see in the
        folder.
        """
        self._engine: Engine = create_engine(
            settings.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        self._store = store
        self._holder = holder
        self._on_lost = on_lost
        self._on_asked = on_asked
        self._session: Connection | None = None
        self._pid = self._term = 0
        self._renewed = -PATIENCE_S
        self._lost: str | None = None
        self._losing = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def try_lead(self) -> Tenure | None:
        """Return the turn if it is free, else None; blocks for a moment.

        From then on the store writes in this turn alone.

        Raises:
            DBAPIError: If the database does not answer; try again.
            StoreError: If it is older than PostgreSQL 14.
        """
        asked_at = _now()
        if not self._take_lock():
            return None
        # Not fenced yet: this is the transaction that ends what others were fenced by.
        with self._store.write() as connection:
            row = {"holder": self._holder, "since": time.time(), "asked": None}
            raised = (
                insert(leadership)
                .values(only=1, term=1, **row)
                .on_conflict_do_update(
                    index_elements=[leadership.c.only], set_={"term": leadership.c.term + 1, **row}
                )
                .returning(leadership.c.term)
            )
            self._term = connection.execute(raised).scalar_one()
        self._renewed = asked_at
        self._beat()
        self.check()
        tenure = Tenure(self._term, self.check, self._lose_now)
        self._store.lead(tenure)
        for work in (self._beat_on, self._watch):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()
        return tenure

    def check(self) -> None:
        """Raise LeadershipLostError if the turn is over, or may be by this process's clock."""
        if self._lost is None and _now() > self._renewed + PATIENCE_S:
            self._lose(f"the database has not answered for {PATIENCE_S:.0f} s")
        if self._lost is not None:
            raise LeadershipLostError(self._lost)

    def close(self) -> None:
        """End the turn or the candidacy; another process may lead at once."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._drop_session()
        self._engine.dispose()

    def _take_lock(self) -> bool:
        try:
            if self._session is None:
                self._session = self._engine.connect()
                _prepare(self._session)
            self._pid = self._session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            taken = text(f"SELECT pg_try_advisory_lock({_LOCK})")
            return bool(self._session.execute(taken).scalar_one())
        except DBAPIError:
            self._drop_session()
            raise

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            # A broken connection has nothing left to close.
            with contextlib.suppress(DBAPIError):
                session.close()

    def _beat_on(self) -> None:
        known: str | None = None
        while not self._ended.wait(BEAT_S) and self._lost is None:
            asked = self._beat()
            if asked is not None and asked != known:
                known = asked
                self._on_asked(asked)

    def _beat(self) -> str | None:
        """Ask the session whether the turn goes on; return what another process asks, if any."""
        asked_at, session = _now(), self._session
        try:
            row = None if session is None else session.execute(_BEAT).one()
        except DBAPIError:
            self._lose("the database connection that held the leadership broke")
            return None
        if row is None or (row.pg_backend_pid, row.term) != (self._pid, self._term):
            self._lose("another session answers: a connection pool must lend whole sessions")
            return None
        self._renewed = asked_at
        return None if row.asked is None else str(row.asked)

    def _watch(self) -> None:
        """Give up in time while the session waits for an answer that does not come."""
        while not self._ended.wait(max(0.05, self._renewed + PATIENCE_S - _now())):
            with contextlib.suppress(LeadershipLostError):
                self.check()
            if self._lost is not None:
                return

    def _lose_now(self, reason: str) -> None:
        self._lose(reason)
        raise LeadershipLostError(reason)

    def _lose(self, reason: str) -> None:
        with self._losing:
            is_first, self._lost = self._lost is None, self._lost or reason
        if is_first:
            self._on_lost(reason)


def last_leader(store: Store) -> Leader | None:
    """Return who leads, or led last; None before the first."""
    with store.read() as connection:
        row = connection.execute(select(leadership)).first()
    return None if row is None else Leader(row.holder, row.since, row.term)


def current_leader(store: Store) -> Leader | None:
    """Return who leads a PostgreSQL store now; None if nobody does."""
    with store.read() as connection:
        is_held = bool(connection.execute(_IS_HELD).scalar_one())
    return last_leader(store) if is_held else None


def ask_leader(store: Store, word: str) -> None:
    """Ask the leader to write a word, at most 32 characters, into the folder that is shared."""
    # Not fenced: it changes nothing that a run depends on.
    with store.write() as connection:
        connection.execute(update(leadership).values(asked=word))


def clock_ahead_s(store: Store) -> float:
    """Return how far this machine's clock is ahead of a PostgreSQL store's, in seconds."""
    with store.read() as connection:
        return time.time() - float(connection.execute(_CLOCK_THERE).scalar_one())


def _prepare(session: Connection) -> None:
    version = session.dialect.server_version_info
    if version is None or version < _OLDEST:
        found = "" if version is None else f", got {'.'.join(map(str, version))}"
        raise StoreError(f"store.url must name a PostgreSQL of version 14 or newer{found}")
    session.execute(text(f"SET idle_session_timeout = {SILENCE_MS}"))


def _now() -> float:
    return time.clock_gettime(_CLOCK)
