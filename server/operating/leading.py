"""Let one coordinator at a time serve: by the folder's lock, or by a PostgreSQL that several share.

On PostgreSQL every coordinator of a federation is started alike. One leads; each other stands by,
its ports closed, and leads when it can. The folder is read after that: the takeover is a restart,
on another machine. A leader that loses its turn ends its process at once, with a status for which
a service manager starts it again, to stand by.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError, InternalError, OperationalError

from privacy.foundation.atomic_files import write_atomically
from server.config.federation import FederationConfig
from server.config.listen import ListenSettings
from server.operating.admin_socket import admin_socket
from server.records.folder import ServerFolder
from server.records.leadership import (
    BEAT_S,
    Leader,
    Leadership,
    ask_leader,
    clock_ahead_s,
    current_leader,
    last_leader,
)
from server.records.lock import AlreadyRunningError, only_holder, only_one
from server.records.store import Store, StoreError, check_run, open_store
from server.records.tenure import ALONE, LeadershipLostError, Tenure
from server.services.listeners import open_admin
from server.services.standby import StandbyService

LOST_STATUS: Final = 75
"""Exit status of a process that no longer leads: EX_TEMPFAIL, for which it is started again."""

_LOG = logging.getLogger(__name__)
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_GRACE_S = 1.0
# Longer than network file systems keep what they have read of a folder.
_SHARING_S = 90.0
_WARNED_CLOCK_S = 5.0


def told(leader: Leader) -> str:
    """Return who leads, since when and in which term."""
    since = datetime.fromtimestamp(leader.since, UTC).isoformat(timespec="seconds")
    return f"{leader.holder} leads since {since} (term {leader.term})"


@contextlib.contextmanager
def out_of_service(folder: ServerFolder, config: FederationConfig) -> Iterator[Tenure]:
    """Let no coordinator serve while a command changes what it reads.

    Raises:
        AlreadyRunningError: If one serves, here or on another machine.
        StoreError: If the store cannot be opened.
    """
    if config.store.sqlite_path is not None:
        with only_one(folder):
            yield ALONE
        return
    store = open_store(config.store)
    leadership = _leadership(folder, config, store)
    try:
        tenure = leadership.try_lead()
        if tenure is None:
            leader = last_leader(store)
            raise AlreadyRunningError(
                "a coordinator serves; stop it with `sotto-server drain` on its machine"
                + ("" if leader is None else f": {told(leader)}")
            )
        yield tenure
    finally:
        leadership.close()
        store.close()


@contextlib.asynccontextmanager
async def in_turn(
    folder: ServerFolder, config: FederationConfig, listen: ListenSettings
) -> AsyncIterator[Store | None]:
    """Lend the store once this process may serve; None if a signal ends it before.

    ``listen.metrics`` is where a coordinator that stands by says so.

    Raises:
        AlreadyRunningError: If another process serves this folder, where one alone can, or stands
            by on this machine.
        StoreError: If the store cannot be opened or does not belong to this run, or the folder is
            not the one that the leader writes to.
        ListenError: If the operator's socket or the address of metrics cannot be opened.
        LeadershipLostError: If the database stops answering meanwhile.
    """
    if config.store.sqlite_path is not None:
        with only_one(folder):
            store = await asyncio.to_thread(open_store, config.store)
            try:
                yield store
            finally:
                store.close()
        return
    here = admin_socket(folder, config)
    running = f"a coordinator of {folder.root} runs on this machine"
    with only_holder(here.with_suffix(".lock"), running):
        store = await asyncio.to_thread(open_store, config.store)
        leadership = _leadership(folder, config, store)
        try:
            run = check_run(store, config.seed, config.run_digest)
            _compare_clocks(store)
            standby = _Standby(folder, store, leadership)
            yield store if await standby.wait(here, run, listen) else None
        except (InternalError, OperationalError) as error:
            # Another may lead before it answers again; a start finds out.
            raise LeadershipLostError(f"the database does not answer: {error.orig}") from None
        finally:
            await asyncio.to_thread(leadership.close)
            store.close()


class _Standby:
    """A coordinator that waits until it leads."""

    def __init__(self, folder: ServerFolder, store: Store, leadership: Leadership) -> None:
        self._folder = folder
        self._store = store
        self._leadership = leadership
        self._leader: Leader | None = None
        self._is_cut_off = False
        self._sharing = _Sharing(folder, store)

    async def wait(self, here: Path, run: str, listen: ListenSettings) -> bool:
        """Return True once this process leads, False when a signal tells it to stop."""
        # Here, because they import Prometheus' library, and most commands need none.
        from server.services.metrics import StandbyMetrics
        from server.services.metrics_page import open_metrics

        with _stopping() as stopped:
            if await self._try():
                return True
            async with open_metrics(listen, StandbyMetrics(self._folder.root)):
                grpc_server = await open_admin(StandbyService(run, self._told), here)
                try:
                    return await self._wait(stopped)
                finally:
                    await grpc_server.stop(_GRACE_S)

    async def _wait(self, stopped: asyncio.Event) -> bool:
        while not stopped.is_set():
            if await self._try():
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), BEAT_S)
        return False

    async def _try(self) -> bool:
        try:
            tenure = await asyncio.to_thread(self._leadership.try_lead)
            if tenure is None:
                await asyncio.to_thread(self._look)
            self._is_cut_off = False
        except DBAPIError as error:
            if not self._is_cut_off:
                _LOG.warning("standby: the database does not answer, tries again: %s", error.orig)
            self._is_cut_off = True
            return False
        if tenure is not None:
            _LOG.info("this coordinator leads (term %s)", tenure.term)
        return tenure is not None

    def _look(self) -> None:
        """Note who leads, and whether both see the same folder."""
        leader = last_leader(self._store)
        if leader is None:
            return
        if leader != self._leader:
            _LOG.info("standby: %s", told(leader))
        self._sharing.compare(leader)
        self._leader = leader

    def _told(self) -> str:
        who = "another coordinator leads" if self._leader is None else told(self._leader)
        return f"this coordinator stands by: {who}; run the command there"


class _Sharing:
    """The question whether this folder is the leader's: it writes a word, which is read here."""

    def __init__(self, folder: ServerFolder, store: Store) -> None:
        self._folder = folder
        self._store = store
        self._word = secrets.token_hex(16)
        self._asked: Leader | None = None
        self._until = self._again_at = 0.0
        self._is_shared = False

    def compare(self, leader: Leader) -> None:
        """Ask a leader for the word and look for it; StoreError if it does not come."""
        if self._is_shared:
            return
        if leader != self._asked:
            self._asked, self._until = leader, time.monotonic() + _SHARING_S
            self._again_at = 0.0
        if time.monotonic() > self._again_at:
            # Others that stand by may ask at the same time: one word at a time is answered.
            self._again_at = time.monotonic() + 5 + secrets.randbelow(10)
            ask_leader(self._store, self._word)
        with contextlib.suppress(FileNotFoundError):
            self._is_shared = self._folder.shared_word.read_text() == self._word
        if not self._is_shared and time.monotonic() > self._until:
            raise StoreError(
                f"{self._folder.root} must be the leader's folder, on a file system that both "
                f"machines mount: what {leader.holder} wrote there did not appear here in "
                f"{_SHARING_S:.0f} s"
            )


def leader_elsewhere(config: FederationConfig, store: Store) -> Leader | None:
    """Return who leads a store that several coordinators share; None if nobody does."""
    return None if config.store.sqlite_path is not None else current_leader(store)


def _leadership(folder: ServerFolder, config: FederationConfig, store: Store) -> Leadership:
    return Leadership(
        config.store,
        store,
        socket.gethostname(),
        on_lost=_leave,
        on_asked=lambda word: write_atomically(folder.shared_word, word.encode(), flush=False),
    )


def _leave(reason: str) -> None:
    """End the process at once: whatever it still did, another may be doing by now."""
    line = f"sotto-server: leadership lost, this process ends: {reason}\n"
    os.write(2, line.encode())
    os._exit(LOST_STATUS)


def _compare_clocks(store: Store) -> None:
    ahead_s = clock_ahead_s(store)
    if abs(ahead_s) > _WARNED_CLOCK_S:
        _LOG.warning(
            "this machine's clock is %.0f s ahead of the database's: set it, or a round that is "
            "taken over closes by that much earlier or later",
            ahead_s,
        )


@contextlib.contextmanager
def _stopping() -> Iterator[asyncio.Event]:
    """Lend what SIGTERM or SIGINT sets."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _STOPPING:
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)
