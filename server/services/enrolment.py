"""Serve devices that have an invite and no certificate yet.

A stranger costs as little as can be: its address is counted when its headers are here, then its
message has so long to come, then the token is looked at, and only then is anything else read.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from privacy.foundation.callers import network_of
from privacy.foundation.rate_limit import RateLimit
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.membership import Membership
from server.devices.refused_calls import RefusedError, answering
from server.services.admission import check_protocol
from server.services.federation_calls import only_message

# Tokens have 128 random bits and cannot be guessed; the limit keeps a stranger from spending the
# coordinator's time on signatures. Fifty devices behind one address can be set up within a minute.
_PER_SECOND = 1.0
_BURST = 50


class EnrolmentService:
    """The service for enrolling devices, over server TLS; the token is all they have."""

    def __init__(self, membership: Membership, run: str) -> None:
        self._membership = membership
        self._run = run
        self._limit = RateLimit(per_second=_PER_SECOND, burst=_BURST)

    # Any: mypy cannot name the context's two message types for a servicer method.
    async def enrol(
        self,
        messages: AsyncIterator[pb.EnrolRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> pb.EnrolResponse:
        """Turn a single-use token into a device identity."""
        async with answering(context):
            if self._limit.wait_s(network_of(context.peer())) > 0:
                raise RefusedError(
                    RefusalCode.RATE_LIMITED,
                    "too many enrolments from this address; try again in a minute",
                )
            request = await only_message(messages)
            check_protocol(request.protocol_version)
            answer = await self._membership.enrol(request.token, request.signing_requests)
        answer.run = self._run
        return answer


def add_enrolment(service: EnrolmentService, grpc_server: grpc.aio.Server) -> None:
    """Register ``Enrol`` so that its handler runs before the message is read."""
    handler: grpc.RpcMethodHandler[pb.EnrolRequest, pb.EnrolResponse] = (
        grpc.stream_unary_rpc_method_handler(
            service.enrol,
            request_deserializer=pb.EnrolRequest.FromString,
            response_serializer=pb.EnrolResponse.SerializeToString,
        )
    )
    name = pb.DESCRIPTOR.services_by_name["Enrolment"].full_name
    grpc_server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(name, {"Enrol": handler}),)
    )
    grpc_server.add_registered_method_handlers(name, {"Enrol": handler})
