"""Serve enrolled devices: check each call's certificate, and translate it for the coordinator."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from models.text.vocabulary import Vocabulary
from privacy.foundation.rate_limit import RateLimit
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.data_chunks import PIECE_BYTES
from protos.refusals import RefusalCode
from server.config.federation import FederationConfig
from server.coordinating.desk import DeviceDesk
from server.devices.membership import Membership
from server.devices.refused_calls import RefusedError, answering
from server.devices.transfer_line import TransferLine
from server.devices.upload_piece import UploadPiece
from server.services.admission import check_device

MOST_LEAVING_BYTES = 32 << 20
"""Bytes of models that may be on their way out of memory at a time: a piece each of 256."""
# A renewal is three signatures and two flushed transactions; an honest device asks a few times a
# year, and again when the answer was lost.
_RENEWAL_EVERY_S = 60.0
_RENEWALS_AT_ONCE = 8
# Any: the message types differ for every method, and the certificate is the same for all.
_Context = grpc.aio.ServicerContext[Any, Any]


class FederationService(pb_grpc.FederationServicer):
    """The service for devices, over mutual TLS."""

    def __init__(
        self,
        desk: DeviceDesk,
        membership: Membership,
        config: FederationConfig,
        vocabulary: Vocabulary | None,
    ) -> None:
        """Serve one federation; ``vocabulary`` is for devices that lack the word list."""
        self._desk = desk
        self._membership = membership
        self._config = config
        self._vocabulary = vocabulary
        self._leaving = TransferLine(MOST_LEAVING_BYTES)
        self._renewals = RateLimit(per_second=1 / _RENEWAL_EVERY_S, burst=_RENEWALS_AT_ONCE)

    async def CheckIn(  # noqa: N802 (the contract's name, here and below)
        self, request: pb.CheckInRequest, context: _Context
    ) -> AsyncIterator[pb.WorkOrder]:
        """Open the device's stream and push work down it until the device leaves."""
        async with answering(context):
            client = await self._caller(context)
            check_device(request, self._config)
            session = self._desk.join(
                client,
                version=request.software_version,
                lacks_personal=request.lacks_personal,
            )
            try:
                async for order in session.orders():
                    yield order
                    del order
            finally:
                self._desk.leave(session)

    # Override: the listener registers this method for messages that are encoded already.
    async def FetchModel(  # type: ignore[override]  # noqa: N802
        self, request: pb.FetchModelRequest, context: _Context
    ) -> None:
        """Write a sealed part of the model to the holder of a lease, as encoded messages."""
        async with answering(context):
            client = await self._caller(context)
            async with self._leaving.turn(PIECE_BYTES) as turn:
                for piece in await self._desk.model_pieces(client, request):
                    # Written here and not yielded: a device that loses its place is told so.
                    await context.write(piece)
                    turn.moved()
                    self._desk.sent_bytes += len(piece)

    async def FetchVocabulary(  # noqa: N802
        self, request: pb.FetchVocabularyRequest, context: _Context
    ) -> AsyncIterator[pb.VocabularyChunk]:
        """Stream the plan's public word list."""
        async with answering(context):
            await self._caller(context)
            words = self._vocabulary
            if words is None or request.sha256 != words.sha256:
                raise RefusedError(
                    RefusalCode.UNKNOWN_VOCABULARY, "no plan of this federation has that word list"
                )
            encoded = words.to_bytes()
            for start in range(0, len(encoded), PIECE_BYTES):
                yield pb.VocabularyChunk(data=encoded[start : start + PIECE_BYTES])

    async def OpenUpload(  # noqa: N802
        self, request: pb.OpenUploadRequest, context: _Context
    ) -> pb.OpenUploadResponse:
        """Start an upload, or say where it stopped."""
        async with answering(context):
            client = await self._caller(context)
            return self._desk.intake.open(client, request)

    # Override: the listener registers this method with a reader that copies nothing.
    async def Upload(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[UploadPiece], context: _Context
    ) -> pb.UploadResponse:
        """Append to an open upload."""
        async with answering(context):
            client = await self._caller(context)
            offset = await self._desk.intake.receive(client, request_iterator)
        return pb.UploadResponse(offset=offset)

    async def CommitUpload(  # noqa: N802
        self, request: pb.CommitUploadRequest, context: _Context
    ) -> pb.CommitUploadResponse:
        """Count an upload, after it is verified and durable."""
        async with answering(context):
            client = await self._caller(context)
            round_number = await self._desk.commit(client, request)
        return pb.CommitUploadResponse(round_number=round_number)

    async def ReportEvaluation(  # noqa: N802
        self, request: pb.ReportEvaluationRequest, context: _Context
    ) -> pb.ReportEvaluationResponse:
        """Take a device's counts for a plan of kind ``evaluate``."""
        async with answering(context):
            client = await self._caller(context)
            self._desk.report_evaluation(client, request)
        return pb.ReportEvaluationResponse()

    async def SendEmbedding(  # noqa: N802
        self, request: pb.SendEmbeddingRequest, context: _Context
    ) -> pb.SendEmbeddingResponse:
        """Keep the embedding that a device has fitted, after it is verified and durable."""
        async with answering(context):
            await self._desk.take_embedding(await self._caller(context), request)
        return pb.SendEmbeddingResponse()

    async def RefusePlan(  # noqa: N802
        self, request: pb.RefusePlanRequest, context: _Context
    ) -> pb.RefusePlanResponse:
        """Release a device from a plan that it will not run, and count its reason."""
        async with answering(context):
            self._desk.refuse_plan(await self._caller(context), request.lease_nonce, request.code)
        return pb.RefusePlanResponse()

    async def RenewCertificates(  # noqa: N802
        self, request: pb.RenewCertificatesRequest, context: _Context
    ) -> pb.RenewCertificatesResponse:
        """Exchange a device's certificates before they expire."""
        async with answering(context):
            client = await self._caller(context)
            if self._renewals.wait_s(client) > 0:
                raise RefusedError(
                    RefusalCode.RATE_LIMITED,
                    "too many renewals of this device's certificates; try again in a minute",
                )
            return await self._membership.renew(client, request.signing_requests)

    async def _caller(self, context: _Context) -> str:
        return await self._membership.identify(context)
