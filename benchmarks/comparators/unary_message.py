"""Send a payload as one gRPC message over TLS, as a federation does that has no streams.

No protobuf and no copy: the bytes are the message. Both ends need their message limits raised.
"""

import grpc

SERVICE = "unary.Message"
# gRPC counts message sizes in a signed 32-bit number.
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


async def _take(_message: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    return b""


def handler() -> grpc.GenericRpcHandler:
    """Return what to register with a gRPC server that has these options."""
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Send": grpc.unary_unary_rpc_method_handler(_take)
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


async def send(channel: grpc.aio.Channel, payload: bytes) -> None:
    """Send a payload over a channel that has these options."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/Send")
    await call(payload)
