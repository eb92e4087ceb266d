"""Make updates durable together: those that wait for the disk at one moment share one transaction.

Nobody waits for a group to fill. The first one goes alone, and whoever arrives meanwhile goes with
the next: a small round is as fast as without groups, and a crowd pays for few flushes. Each is
acknowledged after its group is on the disk, and only its own fault keeps it from counting.
"""

import asyncio
import time

from server.records.contributions import Verified, keep_contributions
from server.releases.storage import Storage

# A transaction holds the store's lock: renewals and reads of others must not wait for long.
_MOST_TOGETHER = 64


class GroupCommit:
    """The verified updates of one coordinator on their way to its store."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: list[tuple[Verified, asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None

    async def keep(self, verified: Verified) -> None:
        """Make an update durable; after this it may be acknowledged.

        Raises:
            ContributionError: As ``keep_contributions`` returns.
            OSError: If the disk is full.
        """
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((verified, kept))
        if self._running is None:
            self._running = asyncio.create_task(self._keep_all())
        await kept

    async def _keep_all(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[:_MOST_TOGETHER]
                del self._waiting[:_MOST_TOGETHER]
                outcomes = await self._outcomes([verified for verified, _ in group])
                for (_, kept), outcome in zip(group, outcomes, strict=True):
                    if kept.done():
                        continue
                    if outcome is None:
                        kept.set_result(None)
                    else:
                        kept.set_exception(outcome)
        finally:
            self._running = None

    async def _outcomes(self, group: list[Verified]) -> list[Exception | None]:
        storage = self._storage
        try:
            return await storage.threads.run(
                lambda: keep_contributions(
                    storage.store,
                    storage.inbox,
                    group,
                    now=time.time(),
                    failpoints=storage.failpoints,
                )
            )
        except Exception as error:  # whatever it is, each of them gets it
            return [error] * len(group)
