"""Serve the operator over the owner-only socket."""

from typing import Any

import grpc
import msgspec

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.version import VERSION
from server.coordinating.coordinator import Coordinator
from server.devices.refused_calls import answering
from server.records.store import Store
from server.records.threads import Threads
from server.releases.publishing import ReleaseSummary, list_releases

# Any: the message types differ for every method and do not matter here.
_Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(pb_grpc.AdminServicer):
    """The service behind ``sotto-server``'s other commands."""

    def __init__(self, coordinator: Coordinator, store: Store, threads: Threads, run: str) -> None:
        self._coordinator = coordinator
        self._store = store
        self._threads = threads
        self._run = run

    async def Status(  # noqa: N802 (the contract's name, here and below)
        self, request: pb.StatusRequest, context: _Context
    ) -> pb.StatusResponse:
        """Return where the run stands."""
        status = await self._coordinator.status()
        status.run, status.software_version = self._run, VERSION
        return status

    async def ListRounds(  # noqa: N802
        self, request: pb.ListRoundsRequest, context: _Context
    ) -> pb.ListRoundsResponse:
        """List released rounds."""
        first_round = max(1, request.first_round)
        releases = await self._threads.run(lambda: list_releases(self._store, first_round))
        return pb.ListRoundsResponse(rounds=[_summary(release) for release in releases])

    async def Pause(self, request: pb.PauseRequest, context: _Context) -> pb.PauseResponse:  # noqa: N802
        """Open no new round."""
        self._coordinator.pause()
        return pb.PauseResponse()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:  # noqa: N802
        """Open rounds again, also one that was given up."""
        self._coordinator.resume()
        return pb.ResumeResponse()

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:  # noqa: N802
        """Finish the running round and stop."""
        self._coordinator.drain()
        return pb.DrainResponse()

    async def Revoke(self, request: pb.RevokeRequest, context: _Context) -> pb.RevokeResponse:  # noqa: N802
        """Withdraw a device's certificates and end its stream."""
        async with answering(context):
            await self._coordinator.revoke(request.client_name)
        return pb.RevokeResponse()

    async def Forget(self, request: pb.ForgetRequest, context: _Context) -> pb.ForgetResponse:  # noqa: N802
        """Revoke a device and delete what is known of it."""
        async with answering(context):
            deleted = await self._coordinator.forget(request.client_name)
        return pb.ForgetResponse(deleted_updates=deleted)


def _summary(release: ReleaseSummary) -> pb.RoundSummary:
    return pb.RoundSummary(
        round_number=release.round_number,
        attempt=release.attempt,
        contributions=release.contribution_count or 0,
        model_sha256=release.parameters_sha256.hex(),
        duration_s=release.duration_s,
        metrics=msgspec.json.encode(release.metrics).decode(),
    )
