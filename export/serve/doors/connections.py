"""Bound what a connection may send before its request begins: uvicorn's fast parser does not.

Headers may take so many bytes and seconds. Clients that send more are cut off, so that nobody
without a token can fill the server's memory or its list of connections for long.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEADERS_BYTES = 1 << 16

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class BoundedHeaders(HttpToolsProtocol):
    """A reader of HTTP/1.1 with bounded headers."""

    headers_s: ClassVar[float] = 10.0

    # Any: what uvicorn hands over, passed on as it is.
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_waiting = True
        self._waited_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.headers_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, unless these are headers without an end."""
        was_waiting = self._is_waiting
        if was_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.headers_s, self.transport.close)
        super().data_received(data)
        # A piece that ended a request, or its headers, is bounded by what asyncio reads at once.
        if was_waiting and self._is_waiting and self._deadline is not None:
            self._waited_bytes += len(data)
            if self._waited_bytes > LARGEST_HEADERS_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        self._is_waiting = True
        super().on_message_complete()

    def _stop_waiting(self) -> None:
        self._is_waiting = False
        self._waited_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bounded_headers(headers_s: float) -> type[BoundedHeaders]:
    """Return the protocol of a server whose headers may take ``headers_s`` seconds."""

    class Bounded(BoundedHeaders):
        """A reader of HTTP/1.1 within this server's time."""

    Bounded.headers_s = headers_s
    return Bounded
