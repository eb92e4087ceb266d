"""Stand before the application: request ids, limits on bodies, figures, and errors without text.

A body is read here, within its limits, and handed on whole. The body of a caller without a
client's token is never read, and a client's limits are asked before its body is: what waits in
memory takes room from everybody. An answer leaves in pieces that wait for the connection. Failures
inside are logged by their place, never by their message, which may hold what was typed.
"""

import asyncio
import contextlib
import logging
import re
import secrets
import time
from traceback import extract_tb
from typing import Any

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from export.serve.doors.connections import PIECE_BYTES
from export.serve.doors.desk import Desk, TooOftenError
from export.serve.doors.room import Call, NoRoomError, TooLargeError, TooManyCallsError
from export.serve.folder.settings import LimitSettings
from export.serve.folder.tokens import bearer_token

_LOG = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID_HEADER = "X-Request-Id"
_UNKNOWN_ROUTE = "other"


class _GoneError(Exception):
    """Raised when the client hung up before its body was here."""


class _TooSlowError(Exception):
    """Raised when a body is not here in time."""

    def __init__(self, most_s: float) -> None:
        super().__init__(f"a request's body must be here within {most_s:g} s")


# Status and code of what the guard itself does not take.
_REFUSALS: dict[type[Exception], tuple[int, str]] = {
    TooLargeError: (413, "body_too_large"),
    TooManyCallsError: (429, "too_often"),
    NoRoomError: (503, "busy"),
    _TooSlowError: (408, "body_too_slow"),
}


def error_body(code: str, message: str, request_id: str) -> bytes:
    """Return the JSON of an error, the same for every route but the inference protocol's."""
    error = {"code": code, "message": message, "request_id": request_id}
    return msgspec.json.encode({"error": error})


class Guard:
    """A guard around an application."""

    def __init__(self, app: ASGIApp, limits: LimitSettings, desk: Desk) -> None:
        self._app = app
        self._limits = limits
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, metrics = time.perf_counter(), self._desk.metrics
        answer = _Answer(send, _request_id(Headers(scope=scope)))
        state = scope.setdefault("state", {})
        state |= {"request_id": answer.request_id, "refusal": None, "is_counted": False}
        metrics.under_way.inc()
        try:
            await self._answer(scope, receive, answer)
        finally:
            metrics.under_way.dec()
            route = getattr(scope.get("route"), "path", _UNKNOWN_ROUTE)
            metrics.requests.labels(route, str(answer.status or "gone")).inc()
            metrics.seconds.labels(route).observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        headers = Headers(scope=scope)
        client = self._desk.tokens.client_of(bearer_token(headers.get("authorization", "")))
        try:
            with contextlib.ExitStack() as held:
                if client is not None:
                    answer.call = self._counted(client, headers, scope["state"], held)
                if answer.call is None and _has_body(headers):
                    # Every route that takes a body answers 401 or 429, and reads none.
                    answer.closes = True
                    body = b""
                else:
                    body = await self._body(receive, headers, answer.call)
                await self._app(scope, _replay(body, receive), answer.send)
        except _GoneError:
            return
        except tuple(_REFUSALS) as error:
            await answer.refuse(*_REFUSALS[type(error)], str(error))
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__
            _LOG.error(
                "request %s: %s in %s:%s", answer.request_id, kind, place.filename, place.lineno
            )
            await answer.refuse(500, "internal", "the server failed; its log has this request's id")

    # Any: Starlette's state of a request.
    def _counted(
        self, client: str, headers: Headers, state: dict[str, Any], held: contextlib.ExitStack
    ) -> Call | None:
        """Count a call against its client; None if it may not be, and the state has the reason."""
        try:
            call = held.enter_context(self._desk.room.call(client))
            if _has_body(headers):
                self._desk.count_question(client)
                state["is_counted"] = True
        except (TooOftenError, TooManyCallsError) as error:
            state["refusal"] = error
            return None
        return call

    async def _body(self, receive: Receive, headers: Headers, call: Call | None) -> bytes:
        """Return the body; _TooSlowError if it is not here in time, and the errors of the room."""
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._limits.body_bytes:
            raise TooLargeError(self._limits.body_bytes)
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await _read(receive, call)
        except TimeoutError:
            raise _TooSlowError(self._limits.body_s) from None


class _Answer:
    """One answer with its request's id, whose status is remembered.

    Attributes:
        call: The room of the client's call; None for a caller without one.
        closes: Whether the connection ends with it, since a body was left unread.
    """

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._start: Message | None = None
        self.request_id = request_id
        self.status: int | None = None
        self.call: Call | None = None
        self.closes = False

    async def send(self, message: Message) -> None:
        """Send a part on; the head goes with the first bytes, since they may be refused.

        An answer of the client's own waits in memory until it is taken, so it needs room as a body
        does. Files do not: they come as views of bytes that are here once for everybody.
        """
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._start is not None:
            is_own = isinstance(body, bytes) and len(body) > PIECE_BYTES and not more
            if self.call is not None and is_own:
                try:
                    self.call.take_answer(len(body))
                except (TooManyCallsError, NoRoomError) as error:
                    await self.refuse(*_REFUSALS[type(error)], str(error))
                    return
            await self._begin(self._start)
        await self._send_pieces(message, memoryview(body))

    async def refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error instead, if no part of the answer is out, and close."""
        if self.status is not None:
            return  # uvicorn closes the connection
        body = error_body(code, message, self.request_id)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if status in (429, 503):
            headers.append((b"retry-after", b"1"))
        await self._begin({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, start: Message) -> None:
        self._start = None
        self.status = start["status"]
        headers = MutableHeaders(scope=start)
        headers[_ID_HEADER] = self.request_id
        headers.setdefault("Cache-Control", "no-store")
        if self.closes:
            headers["Connection"] = "close"
        await self._send(start)

    async def _send_pieces(self, message: Message, body: memoryview) -> None:
        """Send a body piece by piece; each waits until the connection has taken the one before."""
        if len(body) <= PIECE_BYTES:
            await self._send(message)
            return
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            more = message.get("more_body", False) or start + PIECE_BYTES < len(body)
            await self._send({"type": "http.response.body", "body": piece, "more_body": more})


async def _read(receive: Receive, call: Call | None) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        piece = message.get("body", b"")
        if piece and call is not None:
            call.take_body(len(piece))
        if not message.get("more_body", False):
            return bytes(body + piece) if body else piece
        body += piece


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
