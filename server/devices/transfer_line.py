"""Let so many bytes of updates or models be on their way at a time; whoever comes later waits.

A piece of an update lies in memory until all of it is here, and a piece of a model until the device
has read it. So a transfer waits for a place before its first byte is read or written, in the order
in which devices asked, and places are for a fixed number of bytes, whatever the crowd. What a
device sends meanwhile waits at its own end. If nothing moves while others wait, the transfer that
has been still for longest loses its place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protos.data_chunks import PIECE_BYTES
from protos.refusals import RefusalCode
from server.devices.paced_call import PacedCall
from server.devices.refused_calls import RefusedError

MOST_TRANSFERS = 256
"""Transfers of one direction at a time, however small each is."""

_STILL_S = 20.0
_LOOK_EVERY_S = 1.0
_STILL = "nothing came or went while others waited; go on where it stopped"


class TransferLine:
    """The transfers of one direction.

    Attributes:
        held_bytes: Bytes of those that may move now.
    """

    def __init__(self, most_bytes: int, *, still_s: float = _STILL_S) -> None:
        """Let ``most_bytes`` move at a time; ``still_s`` is how long nothing may while others wait.

        Even the smallest transfer counts for a 256th of it, as each may have a file open.
        """
        self.held_bytes = 0
        self._most_bytes, self._still_s = most_bytes, still_s
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()
        self._moving: set[PacedCall] = set()
        self._looking: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Return how many transfers have no place yet."""
        return len(self._line)

    @asynccontextmanager
    async def turn(self, transfer_bytes: int) -> AsyncIterator[PacedCall]:
        """Wait for a place for a transfer of so many bytes, and lend it to the block.

        The block says when a piece has come or gone, by ``moved`` of what it gets.

        Raises:
            RefusedError: If no piece comes or goes in time.
        """
        held = max(min(transfer_bytes, PIECE_BYTES), self._most_bytes // MOST_TRANSFERS)
        await self._until_called(held)
        call = PacedCall()
        try:
            async with call:
                self._moving.add(call)
                yield call
        finally:
            self._moving.discard(call)
            self._give_back(held)

    async def _until_called(self, held: int) -> None:
        if not self._line and self.held_bytes + held <= self._most_bytes:
            self.held_bytes += held
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((called, held))
        self._look_later()
        try:
            await called
        except asyncio.CancelledError:
            # Its device is gone, perhaps at the moment at which it was called.
            if called.done() and not called.cancelled():
                self._give_back(held)
            raise

    def _give_back(self, held: int) -> None:
        """Free a place, and call those who are first; nobody overtakes for being small."""
        self.held_bytes -= held
        while self._line:
            called, wanted = self._line[0]
            if not called.done():
                if self.held_bytes + wanted > self._most_bytes:
                    return
                self.held_bytes += wanted
                called.set_result(None)
            self._line.popleft()

    def _look_later(self) -> None:
        if self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(min(_LOOK_EVERY_S, self._still_s), self._look)

    def _look(self) -> None:
        """End the transfer that has been still for longest, if none has moved for a while.

        A coordinator that is itself too slow to read moves some, and so ends none.
        """
        self._looking = None
        if not self._line:
            return
        moved_at = [call.moved_at for call in self._moving]
        if moved_at and asyncio.get_running_loop().time() - max(moved_at) >= self._still_s:
            stillest = min(self._moving, key=lambda call: call.moved_at)
            self._moving.discard(stillest)
            stillest.end(RefusedError(RefusalCode.TOO_SLOW, _STILL))
        self._look_later()
