"""Speak to the coordinator: one mutual-TLS channel, and each call of the wire as one coroutine.

Every failure is a refusal with the coordinator's code, or an unreachable coordinator. Bytes travel
in pieces of 256 KiB, so a model never lies in the agent's memory whole, and a broken connection
costs one piece.
"""

import base64
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from typing import Self

import grpc

from edge_client.jobs.job import Evaluated
from edge_client.wire.refusal import UnreachableError, failure_of
from edge_client.wire.refusal_lines import LINES, told_code
from privacy.foundation.atomic_files import BytesLike
from privacy.identities.chains import split_chain
from protos import federation_pb2 as wire
from protos.data_chunks import PIECE_BYTES, large_data, start_of
from protos.federation_pb2_grpc import EnrolmentStub, FederationStub
from protos.version import PLAN_VERSION, PROTOCOL_VERSION

CALL_TIMEOUT_S = 30.0
VOCABULARY_LIMIT_BYTES = 16 << 20
_FEDERATION = wire.DESCRIPTOR.services_by_name["Federation"].full_name
UPLOAD = f"/{_FEDERATION}/Upload"
FETCH_MODEL = f"/{_FEDERATION}/FetchModel"

# A closed connection is seen at once; these find one that went silent (a lost radio link). One that
# was silent for 20 s goes on: a new one would take the training in hand with it.
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 25_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # While data comes, gRPC measures the line with pings of its own, and no other goes out before
    # their answer: a line lost in the middle of a model would be seen after a minute.
    ("grpc.http2.ping_timeout_ms", 25_000),
    # The agent has its own backoff; gRPC's would only add to it.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn gRPC's errors into a refusal or an unreachable coordinator."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise failure_of(error) from None


def pem_certificate(chain: bytes) -> bytes:
    """Return a chain's first certificate in the form that gRPC reads; none behind it is a root."""
    body = base64.encodebytes(split_chain(chain)[0])
    return b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"


async def enrol(
    address: str, trusted: bytes, token: bytes, requests: wire.SigningRequests
) -> wire.EnrolResponse:
    """Exchange an invite's 16-byte token and a signing request for each key for certificates.

    ``address`` is the enrolment listener's ``host:port``, and ``trusted`` as for `Transport`.

    Raises:
        RefusedError: If the coordinator refuses the token, the version or the requests.
        UnreachableError: If the coordinator cannot be reached.
    """
    credentials = grpc.ssl_channel_credentials(pem_certificate(trusted))
    async with grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS) as channel:
        request = wire.EnrolRequest(
            protocol_version=PROTOCOL_VERSION, token=token, signing_requests=requests
        )
        with _failures():
            return await EnrolmentStub(channel).Enrol(request, timeout=CALL_TIMEOUT_S)


class Transport:
    """One channel to the device listener, an asynchronous context manager.

    All methods raise ``RefusedError`` where the coordinator answers no, and ``UnreachableError``
    where it does not answer.
    """

    def __init__(
        self, address: str, trusted: bytes, tls_key: bytes, tls_certificate: bytes
    ) -> None:
        """Prepare a channel to the device listener at ``host:port``.

        ``trusted`` is the certificate, DER, that the listener must have the key of: its own, with
        the chain behind it. The device's TLS key and certificates are PEM.
        """
        credentials = grpc.ssl_channel_credentials(
            pem_certificate(trusted), tls_key, tls_certificate
        )
        self._channel = grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
        self._stub = FederationStub(self._channel)
        # Chunks are encoded and read below; generated methods would copy them through new memory.
        self._upload: grpc.aio.StreamUnaryMultiCallable[bytes, wire.UploadResponse] = (
            self._channel.stream_unary(UPLOAD, response_deserializer=wire.UploadResponse.FromString)
        )
        self._fetch_model = model_stream(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def work_orders(
        self, request: wire.CheckInRequest
    ) -> AsyncGenerator[wire.WorkOrder, None]:
        """Check in and yield what the coordinator pushes, until it ends the stream."""
        request.protocol_version = PROTOCOL_VERSION
        request.plan_version = PLAN_VERSION
        with _failures():
            async for order in self._stub.CheckIn(request):
                yield order

    async def fetch_model(
        self,
        lease: wire.Lease,
        part: wire.ModelPart,
        total_bytes: int,
        target: Path,
        base_sha256: bytes = b"",
    ) -> None:
        """Write one sealed part of the model to ``target``, going on where the file ends.

        ``base_sha256`` is the release that it is to lead from; empty for a whole one.
        """
        have = target.stat().st_size if target.exists() else 0
        request = wire.FetchModelRequest(
            lease_nonce=lease.nonce, offset=have, part=part, base_sha256=base_sha256
        )
        with target.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            with _failures():
                async for data in self._fetch_model(request):
                    have += len(data)
                    if have > total_bytes:
                        raise UnreachableError("the model is longer than the lease says")
                    file.write(data)
        if have != total_bytes:
            raise UnreachableError(f"the model ended after {have} of {total_bytes} bytes")

    async def fetch_vocabulary(self, sha256: bytes) -> bytes:
        """Return the public word list with this digest; the caller checks it."""
        request = wire.FetchVocabularyRequest(sha256=sha256)
        words = bytearray()
        with _failures():
            async for piece in self._stub.FetchVocabulary(request):
                words += piece.data
                if len(words) > VOCABULARY_LIMIT_BYTES:
                    raise UnreachableError("the word list is longer than any word list")
        return bytes(words)

    async def upload(
        self, nonce: bytes, message_id: bytes, sealed: Path, count: Callable[[int], None]
    ) -> None:
        """Send the lacking part; ``count`` gets the bytes sent, even if the connection breaks."""
        total = sealed.stat().st_size
        request = wire.OpenUploadRequest(
            lease_nonce=nonce, message_id=message_id, total_bytes=total
        )
        with _failures():
            opened = await self._stub.OpenUpload(request, timeout=CALL_TIMEOUT_S)
            if opened.committed or opened.offset == total:
                return
            with sealed.open("rb", buffering=0) as file:
                file.seek(opened.offset)
                try:
                    await self._upload(encoded_chunks(file, nonce, opened.offset))
                finally:
                    count(file.tell() - opened.offset)

    async def commit(self, nonce: bytes, message_id: bytes, example_count: int) -> None:
        """Ask for the uploaded update to be made durable; repeats get the same answer."""
        request = wire.CommitUploadRequest(
            lease_nonce=nonce, message_id=message_id, example_count=example_count
        )
        with _failures():
            await self._stub.CommitUpload(request, timeout=4 * CALL_TIMEOUT_S)

    async def send_embedding(self, nonce: bytes, sealed: bytes) -> None:
        """Return a fitted embedding, empty for ``fit_personal``; repeats get the same answer."""
        request = wire.SendEmbeddingRequest(lease_nonce=nonce, sealed=sealed)
        with _failures():
            await self._stub.SendEmbedding(request, timeout=CALL_TIMEOUT_S)

    async def report(self, nonce: bytes, counts: Evaluated) -> None:
        """Return the counts of an evaluation."""
        request = wire.ReportEvaluationRequest(
            lease_nonce=nonce,
            token_count=counts.token_count,
            log_loss_sum=counts.log_loss_sum,
            top1_hits=counts.top1_hits,
            top3_hits=counts.top3_hits,
            word_count=counts.word_count,
            unknown_count=counts.unknown_count,
        )
        with _failures():
            await self._stub.ReportEvaluation(request, timeout=CALL_TIMEOUT_S)

    async def refuse_plan(self, nonce: bytes, code: str) -> None:
        """Tell the coordinator that this device will not run the plan, in the code's fixed line."""
        told = told_code(code)
        request = wire.RefusePlanRequest(lease_nonce=nonce, code=told, reason=LINES[told])
        with _failures():
            await self._stub.RefusePlan(request, timeout=CALL_TIMEOUT_S)

    async def renew(self, requests: wire.SigningRequests) -> wire.RenewCertificatesResponse:
        """Exchange certificates past two thirds of their life for fresh ones."""
        request = wire.RenewCertificatesRequest(signing_requests=requests)
        with _failures():
            return await self._stub.RenewCertificates(request, timeout=CALL_TIMEOUT_S)


def model_stream(
    channel: grpc.aio.Channel,
) -> grpc.aio.UnaryStreamMultiCallable[wire.FetchModelRequest, memoryview]:
    """Return the call that streams a model's bytes, each piece where gRPC laid it."""
    return channel.unary_stream(
        FETCH_MODEL,
        request_serializer=wire.FetchModelRequest.SerializeToString,
        response_deserializer=chunk_data,
    )


def chunk_data(message: bytes) -> memoryview:
    """Return the data of an encoded ``ModelChunk``, without copying a large one.

    Raises:
        google.protobuf.message.DecodeError: If the message is none.
    """
    data = large_data(wire.ModelChunk, message)
    return memoryview(wire.ModelChunk.FromString(message).data) if data is None else data


def encoded_chunks(file: RawIOBase | BufferedIOBase, nonce: bytes, offset: int) -> Iterator[bytes]:
    """Yield the rest of an unbuffered file as ``UploadChunk``; the first one names the lease."""
    head = wire.UploadChunk(lease_nonce=nonce, offset=offset).SerializeToString()
    memory = memoryview(bytearray(PIECE_BYTES))
    while count := file.readinto(memory):
        yield encode_chunk(head, memory[:count])
        head = b""


def encode_chunk(head: bytes, data: BytesLike) -> bytes:
    """Return an encoded ``UploadChunk`` of the encoded other fields and the data, copied once."""
    return b"".join((head, start_of(wire.UploadChunk, len(data)), data))
