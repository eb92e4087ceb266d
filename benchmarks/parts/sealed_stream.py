"""Move a payload as the product does: sealed, signed, streamed, verified, opened.

In memory, chunks are opened as they arrive, into a buffer that is made once. On disk is the
coordinator's own way: sealed chunks go to a file, which is opened and checked, flushed and
renamed, and its folder flushed.
"""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from benchmarks.parts.two_parties import NONCE, RUN, Parties, context_of, schema_of_size
from edge_client.wire.transport import UPLOAD, encode_chunk, model_stream
from models.compression.update_format import PlainFormat, UpdateFormats
from privacy.sealing.envelope import Direction, Opener, seal, sealed_bytes
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from server.devices.upload_piece import UploadPiece, read_piece
from server.downlink.sealed_once import Downlink
from server.machine.answers import Lease
from server.records.inbox import Inbox
from server.records.threads import Threads
from server.uplink.receiving import UploadDesk
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener

SEAL_NOW = b"seal now"

# Any: the message types differ for every method, here and below.
_Context = grpc.aio.ServicerContext[Any, Any]


class MemorySide:
    """Receive into memory, and serve from it."""

    def __init__(self, parties: Parties, payload: memoryview, buffer: memoryview) -> None:
        """Serve ``payload`` and receive into ``buffer``."""
        self._parties = parties
        self._payload = payload
        self._buffer = buffer
        self._downlink = self._sealed()

    def _sealed(self) -> Downlink:
        down = context_of(schema_of_size(len(self._payload)), Direction.DOWNLINK)
        return Downlink.seal(
            self._payload,
            run=RUN,
            round_number=down.round_number,
            base_sha256=down.base_sha256,
            schema_sha256=down.schema_sha256,
            sender=self._parties.coordinator,
        )

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what to register with a gRPC server."""
        return _federation(
            {
                "Upload": grpc.stream_unary_rpc_method_handler(
                    self._upload, read_piece, pb.UploadResponse.SerializeToString
                ),
                "FetchModel": grpc.unary_stream_rpc_method_handler(
                    self._fetch_model, pb.FetchModelRequest.FromString
                ),
            }
        )

    async def _upload(
        self, chunks: AsyncIterator[UploadPiece], _context: _Context
    ) -> pb.UploadResponse:
        """Open an update as it arrives."""
        opener = Opener(
            context_of(schema_of_size(len(self._buffer)), Direction.UPLINK),
            payload_bytes=len(self._buffer),
            recipient=self._parties.coordinator,
            sender=self._parties.device.signing.certified,
            into=self._buffer,
        )
        async for chunk in chunks:
            opener.feed(chunk.take())
        return pb.UploadResponse(offset=len(opener.finish()))

    async def _fetch_model(
        self, request: pb.FetchModelRequest, _context: _Context
    ) -> AsyncIterator[bytes]:
        """Serve the sealed model; ``SEAL_NOW`` for a nonce has it sealed first."""
        downlink = self._sealed() if request.lease_nonce == SEAL_NOW else self._downlink
        for piece in downlink.pieces(self._parties.device.wrapping.certified, 0):
            yield piece


class DiskSide:
    """Receive as the coordinator does, up to the row in its store."""

    def __init__(self, parties: Parties, payload_bytes: int, folder: Path) -> None:
        """Receive below ``folder``."""
        schema = schema_of_size(payload_bytes)
        self._context = context_of(schema, Direction.UPLINK)
        self._sender = parties.device.signing.certified
        self._opener = UpdateOpener(
            UpdateFormats([PlainFormat(schema)]), parties.coordinator, buffer_count=3
        )
        self._threads = Threads(ThreadPoolExecutor(2))
        self._desk = UploadDesk(folder / "uploads", self._threads)
        self._inbox = Inbox(folder / "updates")

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what to register with a gRPC server."""
        return _federation(
            {
                "OpenUpload": grpc.unary_unary_rpc_method_handler(
                    self._open,
                    pb.OpenUploadRequest.FromString,
                    pb.OpenUploadResponse.SerializeToString,
                ),
                "Upload": grpc.stream_unary_rpc_method_handler(
                    self._upload, read_piece, pb.UploadResponse.SerializeToString
                ),
                "CommitUpload": grpc.unary_unary_rpc_method_handler(
                    self._commit,
                    pb.CommitUploadRequest.FromString,
                    pb.CommitUploadResponse.SerializeToString,
                ),
            }
        )

    async def _open(
        self, request: pb.OpenUploadRequest, _context: _Context
    ) -> pb.OpenUploadResponse:
        """Make a file for an upload."""
        offset = self._desk.open(NONCE, request.message_id, request.total_bytes)
        return pb.OpenUploadResponse(offset=offset)

    async def _upload(
        self, chunks: AsyncIterator[UploadPiece], _context: _Context
    ) -> pb.UploadResponse:
        """Write an update to its file, and open it meanwhile."""
        pieces = (chunk.take() async for chunk in chunks)
        begun = self._desk.beginning(NONCE, 0)
        arriving = None if begun is None else self._opener.arriving(self._sealed(*begun))
        if arriving is None:
            raise RuntimeError("there must be memory for an update that arrives")
        offset = await self._desk.receive(NONCE, 0, pieces, also=arriving.feed)
        arriving.close()
        return pb.UploadResponse(offset=offset)

    def _sealed(self, path: Path, message_id: bytes) -> SealedUpdate:
        return SealedUpdate(
            path=path, context=self._context, message_id=message_id, senders=[self._sender]
        )

    async def _commit(
        self, request: pb.CommitUploadRequest, _context: _Context
    ) -> pb.CommitUploadResponse:
        """Check an update and keep it."""
        await self._threads.run(lambda: self._keep(request.message_id))
        return pb.CommitUploadResponse(round_number=1)

    def _keep(self, message_id: bytes) -> None:
        lease = Lease(NONCE, "device", round_number=1, attempt=0, slot=0, deadline=0.0)
        path = self._desk.completed(NONCE, message_id)
        self._opener.check(self._sealed(path, message_id))
        self._opener.forget()
        self._inbox.keep(path, lease, message_id)
        self._desk.forget(NONCE)
        self._inbox.clear(1, 0)


class Device:
    """Send and fetch from the other end."""

    def __init__(self, parties: Parties, payload: memoryview, buffer: memoryview) -> None:
        """Send ``payload`` and fetch into ``buffer``."""
        self._parties = parties
        self._payload = payload
        self._buffer = buffer
        self._schema = schema_of_size(len(payload))

    async def send(self, channel: grpc.aio.Channel) -> None:
        """Seal and upload."""
        await _upload(channel, self._chunks()[1])

    async def send_durably(self, channel: grpc.aio.Channel) -> None:
        """Seal, upload and commit."""
        stub = pb_grpc.FederationStub(channel)
        message_id, chunks = self._chunks()
        total_bytes = sealed_bytes(len(self._payload))
        await stub.OpenUpload(pb.OpenUploadRequest(message_id=message_id, total_bytes=total_bytes))
        await _upload(channel, chunks)
        await stub.CommitUpload(pb.CommitUploadRequest(message_id=message_id))

    def _chunks(self) -> tuple[bytes, Iterator[bytes]]:
        message = seal(
            self._payload,
            context_of(self._schema, Direction.UPLINK),
            sender=self._parties.device,
            recipient=self._parties.coordinator.wrapping.certified,
        )
        return message.message_id, (encode_chunk(b"", chunk) for chunk in message.views())

    async def fetch(self, channel: grpc.aio.Channel, nonce: bytes = b"") -> None:
        """Fetch and open."""
        opener = Opener(
            context_of(self._schema, Direction.DOWNLINK),
            payload_bytes=len(self._buffer),
            recipient=self._parties.device,
            sender=self._parties.coordinator.signing.certified,
            into=self._buffer,
        )
        request = pb.FetchModelRequest(lease_nonce=nonce)
        async for data in model_stream(channel)(request):
            opener.feed(data)
        opener.finish()


async def _upload(channel: grpc.aio.Channel, messages: Iterator[bytes]) -> None:
    call: grpc.aio.StreamUnaryMultiCallable[bytes, pb.UploadResponse] = channel.stream_unary(
        UPLOAD, response_deserializer=pb.UploadResponse.FromString
    )
    await call(messages)


def _federation(methods: "dict[str, grpc.RpcMethodHandler[Any, Any]]") -> grpc.GenericRpcHandler:
    service = pb.DESCRIPTOR.services_by_name["Federation"].full_name
    return grpc.method_handlers_generic_handler(service, methods)
