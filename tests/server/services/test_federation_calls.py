"""The calls of devices over real gRPC: what a device is told that did not keep up."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast
from unittest.mock import AsyncMock, Mock

import grpc
import pytest

from edge_client.wire.transport import FETCH_MODEL
from protos import federation_pb2 as pb
from protos.data_chunks import PIECE_BYTES
from protos.refusals import CODE_KEY
from server.coordinating.desk import DeviceDesk
from server.devices.transfer_line import TransferLine
from server.services import devices
from server.services.devices import FederationService
from server.services.federation_calls import CallsUnderWay, add_federation

# Far more than gRPC sends ahead of a device that does not read, and it does not learn to send more.
PIECES = 64
READS_LITTLE_AHEAD = [("grpc.http2.bdp_probe", 0)]


class Pieces:
    """A desk whose model has so many pieces."""

    sent_bytes = 0

    async def model_pieces(self, client: str, request: pb.FetchModelRequest) -> Iterator[bytes]:
        encoded = pb.ModelChunk(data=bytes(PIECE_BYTES)).SerializeToString()
        return (encoded for _ in range(PIECES))


@asynccontextmanager
async def serving(line: TransferLine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Serve models through this line to anybody, and give the port."""
    monkeypatch.setattr(devices, "TransferLine", lambda _: line)
    membership = Mock(identify=AsyncMock(return_value="device"))
    servicer = FederationService(cast("DeviceDesk", Pieces()), membership, Mock(), None)
    grpc_server = grpc.aio.server()
    add_federation(servicer, CallsUnderWay(membership), grpc_server)
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    await grpc_server.start()
    try:
        yield port
    finally:
        await grpc_server.stop(None)


def test_a_fetch_that_loses_its_place_while_nobody_reads_it_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lose_it() -> grpc.aio.AioRpcError:
        line = TransferLine(PIECE_BYTES, still_s=0.2)
        async with (
            serving(line, monkeypatch) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", READS_LITTLE_AHEAD) as channel,
        ):
            fetch: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
            fetch = channel.unary_stream(FETCH_MODEL)
            idle = fetch(b"")
            await idle.read()
            # It has the only place, and loses it to one that asks later.
            next_one = fetch(b"")
            await next_one.read()
            next_one.cancel()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                while await idle.read() is not grpc.aio.EOF:
                    pass
            return caught.value

    lost = asyncio.run(asyncio.wait_for(lose_it(), 60))

    assert dict(lost.trailing_metadata())[CODE_KEY] == "too_slow"
    assert lost.code() is grpc.StatusCode.DEADLINE_EXCEEDED
