"""Bound what a connection may send and leave unread: uvicorn's fast parser bounds neither.

Headers may take so many bytes, fields and seconds, and few requests may wait behind the one that is
answered. Each piece must be taken within a time. Connections that break a rule are cut off, so
that nobody without a token can fill the server's memory or its list of connections for long.
"""

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEADERS_BYTES = 1 << 16
PIECE_BYTES = 1 << 16
"""Largest part of an answer that waits in memory for one connection."""

TAKEN_WITHIN_S = 30.0
"""Longest time that a client may leave a piece of an answer untaken, in seconds."""

_MOST_FIELDS = 128
_TLS_BUFFER_BYTES = 1 << 15
_MOST_PIPELINED = 8

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class _BoundError(Exception):
    """Raised inside the parser, which stops it."""


class BoundedConnection(HttpToolsProtocol):
    """A connection of HTTP/1.1 with bounded headers, requests and unread answers."""

    headers_s: ClassVar[float] = 10.0

    # Any: what uvicorn hands over, passed on as it is.
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_waiting = True
        self._waited_bytes = 0
        self._field_count = 0
        self._field_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for the first request."""
        super().connection_made(transport)
        # Anything unsent pauses the answer: one piece waits for the client, never two.
        transport.set_write_buffer_limits(high=1, low=0)
        self._deadline = self.loop.call_later(self.headers_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        self._stop_untaken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless these are headers without an end."""
        was_waiting = self._is_waiting
        if was_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.headers_s, self.transport.close)
        super().data_received(data)
        if was_waiting and self._is_waiting and self._deadline is not None:
            self._waited_bytes += len(data)
            if self._waited_bytes > LARGEST_HEADERS_BYTES:
                self._refuse_headers()

    def pause_writing(self) -> None:
        """Wait for the client to take what was sent; if it does not in time, cut it off."""
        super().pause_writing()
        if self._untaken is None:
            self._untaken = self.loop.call_later(TAKEN_WITHIN_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Send on."""
        self._stop_untaken()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Begin to count a request's headers."""
        self._field_count = self._field_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the address; _BoundError if it is too long."""
        self._field_bytes += len(url)
        if self._is_too_large():
            raise _BoundError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field, of a trailer too; _BoundError if it is one too many."""
        self._field_count += 1
        self._field_bytes += len(name) + len(value)
        if self._is_too_large():
            raise _BoundError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer; _BoundError if too many requests wait for theirs already."""
        self._stop_waiting()
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _BoundError
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        self._is_waiting = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed; an answer that is under way is cut off, not mixed up."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
        elif self._is_too_large():
            self._refuse_headers()
        else:
            super().send_400_response(msg)

    def _is_too_large(self) -> bool:
        return self._field_bytes > LARGEST_HEADERS_BYTES or self._field_count > _MOST_FIELDS

    def _refuse_headers(self) -> None:
        self.transport.write(_TOO_LARGE)
        self.transport.close()

    def _stop_waiting(self) -> None:
        self._is_waiting = False
        self._waited_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None


def bounded_connection(headers_s: float) -> type[BoundedConnection]:
    """Return the protocol of a server whose headers may take ``headers_s`` seconds."""

    class Bounded(BoundedConnection):
        """A connection within this server's time."""

    Bounded.headers_s = headers_s
    # asyncio makes a buffer of this size for each TLS connection, before any handshake: 256 KiB.
    SSLProtocol.max_size = _TLS_BUFFER_BYTES
    return Bounded
