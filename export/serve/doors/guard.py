"""Stand before the application: request ids, limits on bodies, figures, and errors without text.

A body is read here, within its limits, and handed on whole. The body of a caller without a
client's token is never read: waiting bodies take room from everybody. Failures inside are logged by
their place, never by their message, which may hold what was typed.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator
from traceback import extract_tb

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from export.serve.folder.settings import LimitSettings
from export.serve.folder.tokens import bearer_token
from export.serve.loaded.metrics import ServingMetrics

_LOG = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID_HEADER = "X-Request-Id"
_UNKNOWN_ROUTE = "other"


class _RefusedError(Exception):
    """Raised when a body is not taken."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _GoneError(Exception):
    """Raised when the client hung up before its body was here."""


def error_body(code: str, message: str, request_id: str) -> bytes:
    """Return the JSON of an error, the same for every route but the inference protocol's."""
    error = {"code": code, "message": message, "request_id": request_id}
    return msgspec.json.encode({"error": error})


class Guard:
    """A guard around an application."""

    def __init__(
        self,
        app: ASGIApp,
        limits: LimitSettings,
        metrics: ServingMetrics,
        is_client: Callable[[str], bool],
    ) -> None:
        self._app = app
        self._is_client = is_client
        self._limits = limits
        self._metrics = metrics
        self._waiting_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        answer = _Answer(send, _request_id(Headers(scope=scope)))
        scope.setdefault("state", {})["request_id"] = answer.request_id
        self._metrics.under_way.inc()
        try:
            await self._answer(scope, receive, answer)
        finally:
            self._metrics.under_way.dec()
            route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
            self._metrics.requests.labels(route, str(answer.status or "gone")).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        headers = Headers(scope=scope)
        token = bearer_token(headers.get("authorization", ""))
        try:
            if _has_body(headers) and not self._is_client(token):
                # Every route that takes a body answers 401, and reads none.
                answer.closes = True
                await self._app(scope, _replay(b"", receive), answer.send)
                return
            with self._room(headers.get("content-length", "0")) as room:
                body = await self._body(receive, room)
                await self._app(scope, _replay(body, receive), answer.send)
        except _GoneError:
            return
        except _RefusedError as error:
            await answer.refuse(error.status, error.code, str(error))
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__
            _LOG.error(
                "request %s: %s in %s:%s", answer.request_id, kind, place.filename, place.lineno
            )
            await answer.refuse(500, "internal", "the server failed; its log has this request's id")

    async def _body(self, receive: Receive, room: "_Room") -> bytes:
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await _read(receive, room)
        except TimeoutError:
            message = f"a request's body must be here within {self._limits.body_s:g} s"
            raise _RefusedError(408, "body_too_slow", message) from None

    @contextlib.contextmanager
    def _room(self, declared: str) -> Iterator["_Room"]:
        """Hold room for a body as it comes; one that says it is too large is refused."""
        room = _Room(self)
        try:
            if declared.isdecimal() and int(declared) > self._limits.body_bytes:
                raise self._too_large()
            yield room
        finally:
            self._waiting_bytes -= room.taken_bytes
            self._metrics.waiting_bytes.set(self._waiting_bytes)

    def take(self, room: "_Room", more_bytes: int) -> None:
        """Give a body more room; _RefusedError if it, or all bodies together, are too large."""
        if room.taken_bytes + more_bytes > self._limits.body_bytes:
            raise self._too_large()
        if self._waiting_bytes + more_bytes > self._limits.waiting_bytes:
            raise _RefusedError(503, "busy", "the server has no room for more requests; try again")
        self._waiting_bytes += more_bytes
        room.taken_bytes += more_bytes
        self._metrics.waiting_bytes.set(self._waiting_bytes)

    def _too_large(self) -> _RefusedError:
        message = f"a request's body must have at most {self._limits.body_bytes} bytes"
        return _RefusedError(413, "body_too_large", message)


class _Room:
    """The bytes held for one body."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.taken_bytes = 0

    def take(self, more_bytes: int) -> None:
        self._guard.take(self, more_bytes)


class _Answer:
    """One answer with its request's id, whose status is remembered."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status: int | None = None
        self.closes = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[_ID_HEADER] = self.request_id
            headers.setdefault("Cache-Control", "no-store")
            if self.closes:
                headers["Connection"] = "close"
        await self._send(message)

    async def refuse(self, status: int, code: str, message: str) -> None:
        if self.status is not None:
            return  # part of an answer is out already, and uvicorn closes the connection
        body = error_body(code, message, self.request_id)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


async def _read(receive: Receive, room: _Room) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        piece = message.get("body", b"")
        room.take(len(piece))
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what hands the body on once, and then what the connection says."""
    handed = False

    async def replayed() -> Message:
        nonlocal handed
        if handed:
            return await receive()
        handed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _request_id(headers: Headers) -> str:
    given = headers.get(_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
