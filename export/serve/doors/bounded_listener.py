"""Bound how many connections a listener holds, of one caller and of all, from accept to close.

They are counted below TLS, so that a handshake that never ends counts as well. A connection too
many is closed as soon as it is accepted: nothing is read, and no memory waits for it.
"""

import contextlib
import logging
import math
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from privacy.foundation.callers import network_of_address
from privacy.foundation.shortages import is_out_of_descriptors, raise_descriptor_limit

_LOG = logging.getLogger(__name__)

MOST_CONNECTIONS = 16_384
"""Most connections of one listener, however many descriptors the process may have."""

_SHARE_OF_ONE = 16
_BACKLOG = 4096
# Unsent bytes that the kernel holds for one connection; more would lie there for slow readers.
_UNSENT_BYTES = 1 << 16
_TCP_NOTSENT_LOWAT = 25  # Linux's number; Python 3.11 has no name for it.
_READ_BYTES = 1 << 16
_REFUSED_AT_ONCE = 64
_SAID_EVERY_S = 60.0


class BoundedListener(socket.socket):
    """A listening socket that holds so many connections and no more."""

    def __init__(
        self, listening: socket.socket, *, most: int, most_of_one: int | None = None
    ) -> None:
        """Take over a listening socket.

        Args:
            listening: The socket, which is empty afterwards.
            most: Most connections that are open at once.
            most_of_one: Most of one caller; None if every caller has the same address, as behind a
                proxy.
        """
        kind = (listening.family, listening.type, listening.proto)
        super().__init__(*kind, fileno=listening.detach())
        self.setblocking(False)
        self._most = most
        self._most_of_one = most if most_of_one is None else most_of_one
        self._open_connections: Counter[str] = Counter()
        self._open_count = 0
        self._spare: BinaryIO | None = _spare_descriptor()
        self._said_at = -math.inf

    # Any: an address as the family has it.
    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection within the bounds; BlockingIOError if none waits."""
        for _ in range(_REFUSED_AT_ONCE):
            try:
                accepted, address = super().accept()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
                self._refuse_one()
                continue
            caller = network_of_address(address[0])
            if self._open_count < self._most and (
                self._open_connections[caller] < self._most_of_one
            ):
                self._open_count += 1
                self._open_connections[caller] += 1
                return _Counted(accepted, partial(self._let_go, caller)), address
            accepted.close()
        raise BlockingIOError  # More may wait; the event loop looks again after its other work.

    def close(self) -> None:
        """Listen no more; the connections stay."""
        super().close()
        if self._spare is not None:
            self._spare.close()

    def _refuse_one(self) -> None:
        """Close a connection that waits and cannot be held: no descriptor is left.

        Left to asyncio, it would be tried two thousand times, each with a traceback in the log.
        """
        if time.monotonic() > self._said_at + _SAID_EVERY_S:
            self._said_at = time.monotonic()
            _LOG.error("connections are refused: the process has no descriptor left for them")
        if self._spare is not None:
            self._spare.close()
            with contextlib.suppress(OSError):
                super().accept()[0].close()
        self._spare = _spare_descriptor()

    def _let_go(self, caller: str) -> None:
        self._open_count -= 1
        self._open_connections[caller] -= 1
        if not self._open_connections[caller]:
            del self._open_connections[caller]


class _Counted(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, accepted: socket.socket, let_go: Callable[[], None]) -> None:
        kind = (accepted.family, accepted.type, accepted.proto)
        super().__init__(*kind, fileno=accepted.detach())
        self._let_go: Callable[[], None] | None = let_go

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Read less at a time than asyncio asks for: what was not wanted is in memory already."""
        return super().recv(min(size, _READ_BYTES), flags)

    def close(self) -> None:
        """Close it, and count it no more."""
        super().close()
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()


def bounded_listener(host: str, port: int, *, one_address: bool) -> BoundedListener:
    """Listen on an address, within a quarter of the process's descriptors.

    Args:
        one_address: Whether every caller has the same address: on loopback, or behind a proxy.

    Raises:
        OSError: If the address is taken or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # Connections inherit what is set here. asyncio sets this one itself, but not for protocol 0;
    # without it, an answer's body waits 40 ms for its head to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        listening.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    most = most_connections()
    most_of_one = None if one_address else max(1, most // _SHARE_OF_ONE)
    return BoundedListener(listening, most=most, most_of_one=most_of_one)


def _spare_descriptor() -> BinaryIO | None:
    try:
        return Path(os.devnull).open("rb")
    except OSError:
        return None  # Another thread was faster; it is tried again.


def most_connections() -> int:
    """Allow the process all the descriptors it may have; return how many one listener may take.

    Two listeners take half at most. The rest is for files, without which nobody could be answered.
    """
    return max(1, min(MOST_CONNECTIONS, raise_descriptor_limit() // 4))
