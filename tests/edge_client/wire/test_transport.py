"""What a connection carried is known, however it ended."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from edge_client.jobs.job import Evaluated
from edge_client.wire.refusal import UnreachableError
from edge_client.wire.transport import CHANNEL_OPTIONS, Transport
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from protos import federation_pb2 as wire
from protos import federation_pb2_grpc as wire_grpc
from protos.data_chunks import PIECE_BYTES
from server.services import listeners
from tests.privacy.conftest import RUN, enrol

OFFSET = 1000
TOTAL = 64 << 20


class BreakingCoordinator(wire_grpc.FederationServicer):
    """Take the first piece of an upload, and close the call; keep what is reported."""

    def __init__(self) -> None:
        self.reported: list[wire.ReportEvaluationRequest] = []

    async def ReportEvaluation(  # noqa: N802
        self, request: wire.ReportEvaluationRequest, context: object
    ) -> wire.ReportEvaluationResponse:
        self.reported.append(request)
        return wire.ReportEvaluationResponse()

    async def OpenUpload(  # noqa: N802 (the contract's name, here and below)
        self, request: wire.OpenUploadRequest, context: object
    ) -> wire.OpenUploadResponse:
        return wire.OpenUploadResponse(offset=OFFSET)

    async def Upload(  # noqa: N802
        self,
        request_iterator: AsyncIterator[wire.UploadChunk],
        context: grpc.aio.ServicerContext[wire.UploadChunk, wire.UploadResponse],
    ) -> wire.UploadResponse:
        await anext(aiter(request_iterator))
        return await context.abort(grpc.StatusCode.UNAVAILABLE, "as told")


@pytest.mark.parametrize("options", [dict(CHANNEL_OPTIONS), dict(listeners._KEEPING_ALIVE)])
def test_a_connection_lives_through_20_seconds_of_silence_and_not_through_a_minute(
    options: dict[str, int],
) -> None:
    # At rest a ping goes out every so often, and its answer may take so long.
    every_ms, answer_ms = options["grpc.keepalive_time_ms"], options["grpc.keepalive_timeout_ms"]

    assert answer_ms > 20_000
    assert every_ms + answer_ms <= 60_000


def test_a_line_lost_in_the_middle_of_a_model_is_given_up_within_30_seconds() -> None:
    # The pings that measure the line while data comes; gRPC's own limit is a minute.
    assert 20_000 < dict(CHANNEL_OPTIONS)["grpc.http2.ping_timeout_ms"] <= 30_000


@asynccontextmanager
async def connected(
    breaking: BreakingCoordinator, device: Identity, coordinator: Identity
) -> AsyncIterator[Transport]:
    """Connect a device to a coordinator that listens while the block lasts."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 8 * PIECE_BYTES)])
    wire_grpc.add_FederationServicer_to_server(breaking, server)
    keys = [(coordinator.tls_key_pem, coordinator.tls_certificate_pem)]
    credentials = grpc.ssl_server_credentials(keys, coordinator.authority_pem, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        async with Transport(
            f"127.0.0.1:{port}",
            coordinator.authority,
            device.tls_key_pem,
            device.tls_certificate_pem,
        ) as transport:
            yield transport
    finally:
        await server.stop(None)


async def upload(sealed: Path, device: Identity, coordinator: Identity) -> int:
    """Return what was counted of an upload that breaks."""
    counted: list[int] = []
    # An upload needs two of the methods.
    breaking = BreakingCoordinator()  # type: ignore[abstract]
    async with connected(breaking, device, coordinator) as transport:
        # gRPC may notice the end of the stream before it has read what the coordinator says.
        with pytest.raises(UnreachableError, match=r"as told|internal"):
            await transport.upload(b"n" * 16, b"m" * 16, sealed, counted.append)
    return sum(counted)


@pytest.fixture
def parties(tmp_path: Path) -> tuple[Identity, Identity]:
    """A device and a coordinator of one authority."""
    now = time.time()
    authority = CertificateAuthority.create(tmp_path / "authority", RUN.hex(), now=now)
    device = enrol(authority, tmp_path / "device", "device-0001", "device", now=now)
    return device, enrol(authority, tmp_path / "own", "coordinator", "coordinator", now=now)


def test_a_report_of_words_tells_how_many_were_typed_and_any_other_does_not(
    parties: tuple[Identity, Identity],
) -> None:
    breaking = BreakingCoordinator()  # type: ignore[abstract]
    counts = {"token_count": 9, "log_loss_sum": 2.0, "top1_hits": 1, "top3_hits": 3}

    async def report() -> None:
        async with connected(breaking, *parties) as transport:
            words = Evaluated(**counts, word_count=7, unknown_count=2)  # type: ignore[arg-type]
            await transport.report(b"n" * 16, words)
            await transport.report(b"n" * 16, Evaluated(**counts))  # type: ignore[arg-type]

    asyncio.run(asyncio.wait_for(report(), 30))

    words, images = breaking.reported
    assert (words.word_count, words.unknown_count, words.top3_hits) == (7, 2, 3)
    assert not images.HasField("word_count")
    assert (images.unknown_count, images.top3_hits) == (0, 3)


@pytest.mark.slow
def test_an_upload_that_breaks_counts_what_was_sent_and_no_more(
    tmp_path: Path, parties: tuple[Identity, Identity]
) -> None:
    device, coordinator = parties
    sealed = tmp_path / "update.sealed"
    with sealed.open("wb") as file:
        file.truncate(TOTAL)

    counted = asyncio.run(asyncio.wait_for(upload(sealed, device, coordinator), 30))

    assert PIECE_BYTES <= counted < TOTAL - OFFSET
