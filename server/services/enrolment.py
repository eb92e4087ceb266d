"""Serve devices that have an invite and no certificate yet."""

from typing import Any

import grpc

from privacy.foundation.rate_limit import RateLimit
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.refusals import RefusalCode
from server.devices.membership import Membership
from server.devices.refused_calls import RefusedError, answering
from server.services.admission import check_protocol

# Tokens have 128 random bits and cannot be guessed; the limit keeps a stranger from spending the
# coordinator's time on signatures. Fifty devices behind one address can be set up within a minute.
_PER_SECOND = 1.0
_BURST = 50


class EnrolmentService(pb_grpc.EnrolmentServicer):
    """The service for enrolling devices, over server TLS; the token is all they have."""

    def __init__(self, membership: Membership, run: str) -> None:
        self._membership = membership
        self._run = run
        self._limit = RateLimit(per_second=_PER_SECOND, burst=_BURST)

    # Any: mypy cannot name the context's two message types for a servicer method.
    async def Enrol(  # noqa: N802 (the contract's name)
        self, request: pb.EnrolRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> pb.EnrolResponse:
        """Turn a single-use token into a device identity."""
        async with answering(context):
            if self._limit.wait_s(_address(context.peer())) > 0:
                raise RefusedError(
                    RefusalCode.RATE_LIMITED,
                    "too many enrolments from this address; try again in a minute",
                )
            check_protocol(request.protocol_version)
            answer = await self._membership.enrol(request.token, request.signing_requests)
        answer.run = self._run
        return answer


def _address(peer: str) -> str:
    return peer.rpartition(":")[0]
