"""Move a payload over gRPC with TLS in 1 MiB chunks and do nothing else to it.

No protobuf, no seal, no check, no disk: chunks go in as the bytes they are and are laid into one
buffer that is made once. That single copy is the least a receiver can do that wants the payload
whole; keeping the chunks in a list instead is slower, since every list takes fresh memory.
"""

from collections.abc import AsyncIterator

import grpc

SERVICE = "bare.Stream"

_Context = grpc.aio.ServicerContext[bytes, bytes]


class BareStream:
    """Serve both directions from and into memory."""

    def __init__(self, payload: list[bytes], buffer: memoryview) -> None:
        """Serve ``payload``, cut into chunks, and receive into ``buffer``."""
        self._payload = payload
        self._buffer = buffer

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what to register with a gRPC server."""
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Up": grpc.stream_unary_rpc_method_handler(self._up),
            "Down": grpc.unary_stream_rpc_method_handler(self._down),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _up(self, chunks: AsyncIterator[bytes], _context: _Context) -> bytes:
        end = 0
        async for chunk in chunks:
            start, end = end, end + len(chunk)
            self._buffer[start:end] = chunk
        return b""

    async def _down(self, _request: bytes, _context: _Context) -> AsyncIterator[bytes]:
        for chunk in self._payload:
            yield chunk


async def send(channel: grpc.aio.Channel, payload: list[bytes]) -> None:
    """Send a payload that is cut into chunks."""
    call: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(f"/{SERVICE}/Up")
    await call(iter(payload))


async def fetch(channel: grpc.aio.Channel, buffer: memoryview) -> None:
    """Receive a payload into a buffer."""
    call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(f"/{SERVICE}/Down")
    end = 0
    async for chunk in call(b""):
        start, end = end, end + len(chunk)
        buffer[start:end] = chunk
