"""Open the door for Prometheus, at an address of its own.

Its figures travel in the clear, to everybody who reaches the address. One caller at a time is
answered, in a thread beside the event loop: a crowd costs a queue, and no device waits for it.
"""

import asyncio
import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from privacy.foundation.host_port import checked_host_port, host_of
from server.config.listen import ListenSettings
from server.services.listeners import ListenError

_LOG = logging.getLogger(__name__)
_SILENCE_S = 5.0
_LOOK_EVERY_S = 0.2


@contextlib.asynccontextmanager
async def open_metrics(listen: ListenSettings, collector: Collector) -> AsyncIterator[int | None]:
    """Answer Prometheus inside the block, where the settings say so; yield the port, else None.

    Raises:
        ListenError: If the address is taken or cannot be used.
    """
    if listen.metrics is None:
        yield None
        return
    if listen.shows_metrics_elsewhere:
        _LOG.warning(
            "listen.metrics %s is not loopback: everybody who reaches it reads the figures, in the "
            "clear; let a firewall or a network policy admit Prometheus alone",
            listen.metrics,
        )
    page = _opened(listen.metrics, collector)
    answering = threading.Thread(
        target=page.serve_forever, args=(_LOOK_EVERY_S,), name="metrics", daemon=True
    )
    answering.start()
    try:
        yield page.server_port
    finally:
        # In a thread: the last answer may still need the event loop.
        await asyncio.to_thread(page.stop)
        answering.join()


def _opened(address: str, collector: Collector) -> "_Page":
    registry = CollectorRegistry()
    registry.register(collector)
    answer = make_wsgi_app(registry)

    def answer_or_say_busy(
        environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        try:
            told: Iterable[bytes] = answer(environ, start_response)
        except Exception as error:
            _LOG.warning("no figures for Prometheus this time: %s", type(error).__name__)
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"the coordinator cannot tell now; ask again\n"]
        return told

    try:
        page = _Page(address)
    except OSError as error:
        raise ListenError(
            f"listen.metrics must be a free address of this machine, got {address}: "
            f"{error.strerror or error}; choose another port, or stop what listens there"
        ) from None
    page.set_app(answer_or_say_busy)
    return page


class _Page(WSGIServer):
    """The listener; stop it from another thread than the one that serves."""

    def __init__(self, address: str) -> None:
        """Listen on ``host:port``; OSError if that is impossible."""
        if address.startswith("["):
            self.address_family = socket.AF_INET6
        self._caller: socket.socket | None = None
        self._is_stopping = False
        super().__init__((host_of(address), checked_host_port("metrics", address).port), _Call)

    def server_bind(self) -> None:
        """Bind without asking the network's name server who this machine is, as HTTPServer does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # str for an address of bytes alone
        self.setup_environ()

    # Any: socketserver's types; this is a TCP socket and its address.
    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Note who is answered; nobody is any more once this stops."""
        self._caller = request
        return not self._is_stopping

    # Any: as above.
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that went away or stayed silent."""

    def stop(self) -> None:
        """Answer nobody any more, and close the port."""
        self._is_stopping = True
        if self._caller is not None:
            # Who asks nothing must not hold this up; who has asked still gets the answer.
            with contextlib.suppress(OSError):
                self._caller.shutdown(socket.SHUT_RD)
        self.shutdown()
        self.server_close()


class _Call(WSGIRequestHandler):
    """One question, which must come in time and is not logged."""

    timeout = _SILENCE_S

    # Any: the base's own format and its arguments.
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""
