"""Answer devices over gRPC: one connection for all that is typed, the same answers as HTTP gives.

A call without a token of this server ends on its headers, and a client's limits are asked then too,
before a message is read; the message must be here within HTTP's time. Failures inside are logged
by their place, never by their message, which may hold what was typed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Never

import grpc

from export.bundles.manifest_entries import BundleError
from export.runtime.next_word import SLOTS
from export.runtime.strip import Slot
from export.serve.doors.bounded_listener import most_connections
from export.serve.doors.desk import Desk, NotKnownError, TooOftenError
from export.serve.doors.room import Call, NoRoomError, TooManyCallsError
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import LimitSettings, ServeSettings
from export.serve.folder.tokens import bearer_token
from export.serve.loaded.people import MOST_KEPT_WORDS, MOST_SUGGESTIONS, Suggested
from export.serve.loaded.personal_models import NoPersonalModelError
from export.serve.loaded.shelf import NothingServedError, UnknownVersionError
from protos import keyboard_pb2 as pb

_LOG = logging.getLogger(__name__)
_ROUTE = "/sotto.v1.Keyboard/Next"
_STOP_WITHIN_S = 10.0
# gRPC looks once in this time, so a connection without a call is closed within twice that.
_IDLE_MS = 20_000

# Any: messages of either direction; gRPC's own types say no more.
_Context = grpc.aio.ServicerContext[Any, Any]


if TYPE_CHECKING:
    _Handler = grpc.RpcMethodHandler[Any, Any]


class _RefusedError(Exception):
    """Raised when a call is not answered."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class KeyboardService:
    """The service that suggests words to devices."""

    def __init__(self, desk: Desk, limits: LimitSettings) -> None:
        self._desk = desk
        self._limits = limits

    async def next(
        self, messages: AsyncIterator[pb.NextRequest], context: _Context
    ) -> pb.NextAnswer:
        """Suggest the next word, or the end of the one begun.

        To gRPC it is a stream with one message, since that is called as soon as the headers are
        here; devices see no difference.
        """
        started, status = time.perf_counter(), grpc.StatusCode.OK
        self._desk.metrics.under_way.inc()
        try:
            client = _client(self._desk, context)
            with self._desk.room.call(client) as call:
                self._desk.count_question(client)
                return await self._answer(await self._message(messages, call), client)
        except (_RefusedError, TooOftenError, TooManyCallsError, NoRoomError) as error:
            status = getattr(error, "code", grpc.StatusCode.RESOURCE_EXHAUSTED)
            await context.abort(status, str(error))
        except Exception as error:
            status = grpc.StatusCode.INTERNAL
            place = extract_tb(error.__traceback__)[-1]
            _LOG.error("gRPC: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
            await context.abort(status, "the server failed; its log says where")
        finally:
            self._desk.metrics.under_way.dec()
            self._desk.metrics.requests.labels(_ROUTE, status.name).inc()
            self._desk.metrics.seconds.labels(_ROUTE).observe(time.perf_counter() - started)

    async def _message(self, messages: AsyncIterator[pb.NextRequest], call: Call) -> pb.NextRequest:
        """Return the one message, for which there is room; _RefusedError if it does not come."""
        # gRPC does not say how much of it is here, so it counts as the largest.
        call.take_body(self._limits.body_bytes)
        try:
            async with asyncio.timeout(self._limits.body_s):
                message = await anext(messages, None)
        except TimeoutError:
            raise _RefusedError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"a call's message must be here within {self._limits.body_s:g} s",
            ) from None
        if message is None:
            raise _RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "a call must have one message")
        call.give_back(self._limits.body_bytes - message.ByteSize())
        return message

    async def _answer(self, asked: pb.NextRequest, client: str) -> pb.NextAnswer:
        count = asked.count if asked.HasField("count") else SLOTS
        if not 1 <= count <= MOST_SUGGESTIONS:
            raise _RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"count must be in [1, {MOST_SUGGESTIONS}], got {count}",
            )
        kept_words = list(asked.kept_words)
        if len(kept_words) > MOST_KEPT_WORDS:
            raise _RefusedError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"kept_words must be at most {MOST_KEPT_WORDS}, got {len(kept_words)}",
            )
        desk = self._desk
        try:
            served = desk.shelf.version(asked.version if asked.HasField("version") else None)
            found = await desk.on_thread(
                client,
                lambda: desk.people.suggest(
                    client,
                    served,
                    asked.text,
                    count=count,
                    keep=not asked.incognito,
                    kept_words=kept_words,
                ),
            )
        except (UnknownVersionError, NoPersonalModelError) as error:
            raise _RefusedError(grpc.StatusCode.NOT_FOUND, str(error)) from None
        except NothingServedError as error:
            raise _RefusedError(grpc.StatusCode.UNAVAILABLE, str(error)) from None
        except BundleError as error:
            _LOG.error("gRPC: %s", error)  # about a file, not a text
            message = "this client's own model cannot be used; the server's log says why"
            raise _RefusedError(grpc.StatusCode.UNAVAILABLE, message) from None
        return _encoded(served.version, found)


@contextlib.asynccontextmanager
async def keyboards_over_grpc(
    folder: ServingFolder, settings: ServeSettings, desk: Desk, address: str
) -> AsyncIterator[int]:
    """Listen for devices until the block ends, within HTTP's limits; yield the port.

    Calls under way are answered first. Port 0 of ``address``, ``host:port``, takes a free one.
    Raise
    ServingError if certificate and key cannot be used, or the address is taken.
    """
    listen, limits = settings.listen, settings.limits
    grpc_server = grpc.aio.server(interceptors=[_KnownAlone(desk)], options=_options(limits))
    grpc_server.add_generic_rpc_handlers([_handlers(KeyboardService(desk, limits))])
    try:
        if listen.certificate is None or listen.key is None:
            port = grpc_server.add_insecure_port(address)
        else:
            tls = _tls(folder.root / listen.certificate, folder.root / listen.key)
            port = grpc_server.add_secure_port(address, tls)
        await grpc_server.start()
    except (RuntimeError, OSError) as error:
        raise ServingError(f"cannot listen on {address} for gRPC: {error}") from None
    try:
        yield port
    finally:
        await grpc_server.stop(_STOP_WITHIN_S)


def _options(limits: LimitSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        # For one connection: a device has one call at a time.
        ("grpc.max_concurrent_streams", 100),
        ("grpc.server_handshake_timeout_ms", round(limits.body_s * 1e3)),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def _handlers(service: KeyboardService) -> grpc.GenericRpcHandler:
    next_word = grpc.stream_unary_rpc_method_handler(
        service.next,
        request_deserializer=pb.NextRequest.FromString,
        response_serializer=pb.NextAnswer.SerializeToString,
    )
    service_name, _, method = _ROUTE.strip("/").partition("/")
    return grpc.method_handlers_generic_handler(service_name, {method: next_word})


class _KnownAlone(grpc.aio.ServerInterceptor):
    """A call that ends on its headers if the token is nobody's."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # Any: whatever a method takes and gives.
    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "_Handler | None":
        token = _token(handler_call_details.invocation_metadata)
        if self._desk.tokens.client_of(token) is not None:
            return await continuation(handler_call_details)
        # A handler for a stream, since that is called before any message is here.
        return grpc.stream_stream_rpc_method_handler(_refuse)


# Any: what a stream brings, which is not looked at.
async def _refuse(_: Any, context: _Context) -> Never:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(NotKnownError()))


def _client(desk: Desk, context: _Context) -> str:
    """Return the client of a call, if there is no reason to send it away."""
    if desk.is_closing:
        raise _RefusedError(grpc.StatusCode.UNAVAILABLE, "the server is about to stop")
    try:
        return desk.client_of(_token(context.invocation_metadata()))
    except NotKnownError as error:  # The token was revoked a moment ago.
        raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, str(error)) from None


# Any: gRPC's metadata, pairs of a name and a text or bytes.
def _token(metadata: Any) -> str:
    """Return the bearer token of a call; empty if it has none."""
    given = dict(metadata or ()).get("authorization", "")
    return bearer_token(given) if isinstance(given, str) else ""


def _encoded(version: str, found: Suggested) -> pb.NextAnswer:
    strip = found.strip
    return pb.NextAnswer(
        version=version,
        suggestions=[
            pb.SuggestedWord(word=word.word, probability=word.probability) for word in found.words
        ],
        strip=pb.SuggestionStrip(
            left=_place(strip.left), centre=_place(strip.centre), right=_place(strip.right)
        ),
    )


def _place(slot: Slot | None) -> pb.StripPlace | None:
    if slot is None:
        return None
    return pb.StripPlace(
        text=slot.text,
        is_verbatim=slot.kind == "verbatim",
        is_correction=slot.kind == "correction",
    )


def _tls(certificate: Path, key: Path) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
