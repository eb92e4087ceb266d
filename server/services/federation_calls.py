"""The calls of enrolled devices, admitted and counted before anything of them is read.

gRPC reads a call's one message before it asks its handler. So each method is registered as one that
takes a stream: its handler runs when the headers are here, knows the caller by its certificate, and
then waits for the message, for so long and no longer. On the wire nothing differs.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.refusals import RefusalCode
from server.devices.membership import Membership
from server.devices.paced_call import MESSAGE_S, PacedCall
from server.devices.refused_calls import RefusedError, answering
from server.devices.upload_piece import read_piece

MOST_CALLS = 8
"""Calls of one device at a time; an agent has two, and twice as many after a lost connection."""

_SERVICE = pb.DESCRIPTOR.services_by_name["Federation"]
# It writes what it answers, in encoded messages.
_WRITES_ITSELF = "FetchModel"
_Message = TypeVar("_Message")
# Any: the message types differ for every method.
_Context = grpc.aio.ServicerContext[Any, Any]


class CallsUnderWay:
    """The calls of each device that are under way, so many and no more."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._count: Counter[str] = Counter()

    async def caller(self, context: _Context) -> str:
        """Return the device that calls.

        Raises:
            RefusedError: If its certificate is unknown, expired, or its device was revoked.
        """
        return await self._membership.identify(context)

    @contextmanager
    def one_of(self, client: str) -> Iterator[None]:
        """Count a call of a device while it lasts.

        Raises:
            RefusedError: If the device has as many as it may.
        """
        if self._count[client] >= MOST_CALLS:
            raise RefusedError(
                RefusalCode.RATE_LIMITED,
                f"this device has {MOST_CALLS} calls under way; wait until one has ended",
            )
        self._count[client] += 1
        try:
            yield
        finally:
            self._count[client] -= 1
            if not self._count[client]:
                del self._count[client]


def add_federation(
    servicer: pb_grpc.FederationServicer, calls: CallsUnderWay, grpc_server: grpc.aio.Server
) -> None:
    """Register the methods for devices; sealed bytes go past protobuf, which would copy them."""
    handlers = {method.name: _handler(servicer, calls, method) for method in _SERVICE.methods}
    generic = grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers)
    grpc_server.add_generic_rpc_handlers((generic,))
    grpc_server.add_registered_method_handlers(_SERVICE.full_name, handlers)


def _handler(
    servicer: pb_grpc.FederationServicer, calls: CallsUnderWay, method: MethodDescriptor
) -> "grpc.RpcMethodHandler[Any, Any]":
    behaviour = getattr(servicer, method.name)
    read = read_piece if method.client_streaming else GetMessageClass(method.input_type).FromString
    write = None if method.name == _WRITES_ITSELF else _encode
    if method.server_streaming:
        streaming = _answering_one if method.name == _WRITES_ITSELF else _streaming
        streamed = streaming(behaviour, calls)
        return grpc.stream_stream_rpc_method_handler(
            streamed, request_deserializer=read, response_serializer=write
        )
    answered = _answering_many if method.client_streaming else _answering_one
    return grpc.stream_unary_rpc_method_handler(
        answered(behaviour, calls), request_deserializer=read, response_serializer=write
    )


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


def _answering_one(
    behaviour: Callable[[Any, _Context], Awaitable[Any]], calls: CallsUnderWay
) -> Callable[[AsyncIterator[Any], _Context], Awaitable[Any]]:
    async def call(messages: AsyncIterator[Any], context: _Context) -> Any:
        async with answering(context):
            with calls.one_of(await calls.caller(context)):
                return await behaviour(await only_message(messages), context)

    return call


def _answering_many(
    behaviour: Callable[[AsyncIterator[Any], _Context], Awaitable[Any]], calls: CallsUnderWay
) -> Callable[[AsyncIterator[Any], _Context], Awaitable[Any]]:
    async def call(messages: AsyncIterator[Any], context: _Context) -> Any:
        async with answering(context):
            with calls.one_of(await calls.caller(context)):
                return await behaviour(messages, context)

    return call


def _streaming(
    behaviour: Callable[[Any, _Context], AsyncIterator[Any]], calls: CallsUnderWay
) -> Callable[[AsyncIterator[Any], _Context], Awaitable[None]]:
    async def call(messages: AsyncIterator[Any], context: _Context) -> None:
        async with answering(context):
            with calls.one_of(await calls.caller(context)):
                answers = behaviour(await only_message(messages), context)
                async with aclosing(answers):  # type: ignore[type-var]
                    async for answer in answers:
                        # Written here and not yielded: a caller that does not read is let go.
                        async with PacedCall():
                            await context.write(answer)
                        # The next may come in a day.
                        del answer

    return call


async def only_message(messages: AsyncIterator[_Message]) -> _Message:
    """Return the one message of a call.

    Raises:
        RefusedError: If it does not come in time, or there is none.
    """
    async with PacedCall(MESSAGE_S):
        message = await anext(aiter(messages), None)
    if message is None:
        raise RefusedError(RefusalCode.WRONG_SIZE, "a call must have one message")
    return message
