"""Send a payload as one gRPC message over TLS, as a federation does that has no streams.

``send`` uses a protobuf message and generated code, as such federations do; ``send_raw`` leaves
protobuf and its copies out. Both ends need their message limits raised.
"""

import grpc

from protos import federation_pb2 as pb

SERVICE = "unary.Message"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

_Context = grpc.aio.ServicerContext[bytes, bytes]


async def _take(request: pb.UploadChunk, _context: _Context) -> pb.UploadResponse:
    return pb.UploadResponse(offset=len(request.data))


async def _take_raw(_message: bytes, _context: _Context) -> bytes:
    return b""


def handler() -> grpc.GenericRpcHandler:
    """Return what to register with a gRPC server that has these options."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Send": grpc.unary_unary_rpc_method_handler(
                _take, pb.UploadChunk.FromString, pb.UploadResponse.SerializeToString
            ),
            "SendRaw": grpc.unary_unary_rpc_method_handler(_take_raw),
        },
    )


async def send(channel: grpc.aio.Channel, payload: bytes) -> None:
    """Send a payload over a channel that has these options."""
    call: grpc.aio.UnaryUnaryMultiCallable[pb.UploadChunk, pb.UploadResponse] = channel.unary_unary(
        f"/{SERVICE}/Send", pb.UploadChunk.SerializeToString, pb.UploadResponse.FromString
    )
    await call(pb.UploadChunk(data=payload))


async def send_raw(channel: grpc.aio.Channel, payload: bytes) -> None:
    """Do the same without protobuf."""
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    call = channel.unary_unary(f"/{SERVICE}/SendRaw")
    await call(payload)
