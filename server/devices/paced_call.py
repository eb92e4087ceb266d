"""A call whose other end has to move on, and which this end may end at any moment."""

import asyncio
from types import TracebackType

from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError

PIECE_S = 45.0
"""Seconds for each piece of a stream, which has 256 KiB: a link of 6 KB/s keeps up."""
MESSAGE_S = 10.0
"""Seconds for a call's one small message after its headers."""

_TOO_SLOW = "nothing came or went for too long; go on where it stopped"


class PacedCall:
    """An asynchronous context around the work of one call, in the call's own task.

    Leaving it by its time or by ``end`` raises the refusal that the caller gets.

    Attributes:
        moved_at: When it began or last moved, by the event loop's clock.
    """

    def __init__(self, piece_s: float = PIECE_S) -> None:
        """Allow ``piece_s`` seconds until the first ``moved`` and between two of them."""
        self._piece_s = piece_s
        self._limit = asyncio.timeout(piece_s)
        self._refused = RefusedError(RefusalCode.TOO_SLOW, _TOO_SLOW)
        self._is_over = False
        self.moved_at = 0.0

    def moved(self) -> None:
        """Begin the time for the next piece."""
        if not self._limit.expired() and not self._is_over:
            self.moved_at = asyncio.get_running_loop().time()
            self._limit.reschedule(self.moved_at + self._piece_s)

    def end(self, refused: RefusedError) -> None:
        """End the call from outside: what it awaits is cancelled at once."""
        if not self._is_over and not self._limit.expired():
            self._refused, self._is_over = refused, True
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> "PacedCall":
        await self._limit.__aenter__()
        self.moved_at = asyncio.get_running_loop().time()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._refused from None
