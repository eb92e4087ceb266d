"""Share the server's room among clients: calls, bytes, and turns on the threads where models run.

All of it is for clients with a token, and is asked before a byte of theirs is read. One client gets
a sixteenth, so nobody's token locks the others out.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakValueDictionary

from export.serve.folder.settings import LimitSettings
from export.serve.loaded.metrics import ServingMetrics

_SHARE_OF_ONE = 16


class TooManyCallsError(Exception):
    """Raised when a client has as many calls or bytes under way as one client may."""

    def __init__(self) -> None:
        super().__init__(
            "this client has as much under way as one client may; wait for an answer, then go on"
        )


class NoRoomError(Exception):
    """Raised when all clients together have taken the room for bodies."""

    def __init__(self) -> None:
        super().__init__("the server has no room for more requests; try again")


class TooLargeError(Exception):
    """Raised when a body is larger than any may be."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"a request's body must have at most {most_bytes} bytes")


@dataclass
class _Held:
    """One client's calls and bytes under way."""

    calls: int = 0
    held_bytes: int = 0


class Room:
    """Room for what clients send, and for answers of their own that they have not taken yet.

    Meant for one thread, the event loop's.
    """

    def __init__(self, limits: LimitSettings, metrics: ServingMetrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._clients: dict[str, _Held] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._held_bytes = 0
        self._most_calls = max(1, limits.waiting_bytes // limits.body_bytes // _SHARE_OF_ONE)
        self._most_bytes = max(limits.body_bytes, limits.waiting_bytes // _SHARE_OF_ONE)

    @contextlib.contextmanager
    def call(self, client: str) -> Iterator["Call"]:
        """Count a client's call until it is over; TooManyCallsError if it is one too many."""
        held = self._clients.setdefault(client, _Held())
        if held.calls >= self._most_calls:
            raise TooManyCallsError
        held.calls += 1
        call = Call(self, held, self._limits.body_bytes, self._most_bytes)
        try:
            yield call
        finally:
            call.give_back(call.taken_bytes)
            held.calls -= 1
            if not held.calls:
                del self._clients[client]

    def turn_of(self, client: str) -> asyncio.Lock:
        """Return the lock under which a client's work runs: one piece of it at a time."""
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Lock()
        return turn

    def take(self, held: _Held, more_bytes: int) -> None:
        """Give a client more bytes, or fewer; TooManyCallsError or NoRoomError if there are none.

        Fewer are always taken.
        """
        if more_bytes > 0:
            if held.held_bytes + more_bytes > self._most_bytes:
                raise TooManyCallsError
            if self._held_bytes + more_bytes > self._limits.waiting_bytes:
                raise NoRoomError
        held.held_bytes += more_bytes
        self._held_bytes += more_bytes
        self._metrics.waiting_bytes.set(self._held_bytes)


class Call:
    """The room of one call.

    Attributes:
        taken_bytes: Bytes that it holds.
    """

    def __init__(self, room: Room, held: _Held, largest_body: int, share_bytes: int) -> None:
        self._room = room
        self._held = held
        self._largest_body = largest_body
        self._share_bytes = share_bytes
        self.taken_bytes = 0

    def take_body(self, more_bytes: int) -> None:
        """Hold more of the request's body.

        Raises:
            TooLargeError: If the body is larger than any may be.
            TooManyCallsError: If the client holds its share already.
            NoRoomError: If all clients together hold all there is.
        """
        if self.taken_bytes + more_bytes > self._largest_body:
            raise TooLargeError(self._largest_body)
        self._take(more_bytes)

    def take_answer(self, more_bytes: int) -> None:
        """Hold an answer that is the client's own; TooManyCallsError or NoRoomError if it cannot.

        One that is larger than a client's share takes all of it, so that it can be sent at all.
        """
        self._take(min(more_bytes, self._share_bytes - self.taken_bytes))

    def give_back(self, fewer_bytes: int) -> None:
        """Hold so many bytes less."""
        self._take(-fewer_bytes)

    def _take(self, more_bytes: int) -> None:
        self._room.take(self._held, more_bytes)
        self.taken_bytes += more_bytes
