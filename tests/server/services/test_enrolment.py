"""The enrolment listener answers so many calls from one address, and no more."""

import asyncio
import time
from typing import cast

import grpc

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.refusals import RefusalCode
from protos.version import PROTOCOL_VERSION
from server.devices.membership import Membership
from server.services.enrolment import EnrolmentService, add_enrolment

BURST = 50
"""What the service's own remark promises: fifty devices behind one address at once."""


class Counting:
    """Stand where the membership is; enrol everybody, and count them."""

    def __init__(self) -> None:
        self.enrolled = 0

    async def enrol(self, token: bytes, requests: pb.SigningRequests) -> pb.EnrolResponse:
        self.enrolled += 1
        return pb.EnrolResponse(client_name="device")


async def call_until_refused(membership: Counting) -> grpc.aio.AioRpcError:
    """Enrol over sockets, each call on a connection of its own, until one is refused."""
    server = grpc.aio.server()
    service = EnrolmentService(cast("Membership", membership), "run")
    add_enrolment(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    request = pb.EnrolRequest(protocol_version=PROTOCOL_VERSION, token=bytes(16))
    try:
        while True:
            # Of its own: what is counted is the address, and not the port.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
                await pb_grpc.EnrolmentStub(channel).Enrol(request)
    except grpc.aio.AioRpcError as refused:
        return refused
    finally:
        await server.stop(None)


def test_an_address_that_enrols_too_often_is_refused_before_its_token_is_looked_at() -> None:
    membership, started = Counting(), time.monotonic()

    refused = asyncio.run(asyncio.wait_for(call_until_refused(membership), 60))

    # One more is allowed for each second that this took.
    assert BURST <= membership.enrolled <= BURST + time.monotonic() - started
    metadata = dict(refused.trailing_metadata() or ())
    assert metadata["sotto-code"] == RefusalCode.RATE_LIMITED
    assert "try again in a minute" in str(refused.details())
