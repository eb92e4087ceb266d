"""Answer the operator on a machine whose coordinator stands by: where it stands, and who leads."""

from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.version import VERSION

STANDBY: str = "standby"
"""The phase that ``Status`` tells of a coordinator that stands by."""

# Any: the message types differ for every method and do not matter here.
_Context = grpc.aio.ServicerContext[Any, Any]


class StandbyService(pb_grpc.AdminServicer):
    """The operator's service of a coordinator that stands by; all but ``Status`` is refused."""

    def __init__(self, run: str, told: Callable[[], str]) -> None:
        """Serve a run; ``told`` returns the line that says who leads."""
        self._run = run
        self._told = told

    async def Status(  # noqa: N802 (the contract's name, here and below)
        self, request: pb.StatusRequest, context: _Context
    ) -> pb.StatusResponse:
        """Say that this coordinator stands by; the store has the rest."""
        return pb.StatusResponse(run=self._run, phase=STANDBY, software_version=VERSION)

    async def ListRounds(  # noqa: N802
        self, request: pb.ListRoundsRequest, context: _Context
    ) -> pb.ListRoundsResponse:
        """Refuse."""
        await self._refuse(context)

    async def Pause(self, request: pb.PauseRequest, context: _Context) -> pb.PauseResponse:  # noqa: N802
        """Refuse."""
        await self._refuse(context)

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:  # noqa: N802
        """Refuse."""
        await self._refuse(context)

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:  # noqa: N802
        """Refuse."""
        await self._refuse(context)

    async def Revoke(self, request: pb.RevokeRequest, context: _Context) -> pb.RevokeResponse:  # noqa: N802
        """Refuse."""
        await self._refuse(context)

    async def Forget(self, request: pb.ForgetRequest, context: _Context) -> pb.ForgetResponse:  # noqa: N802
        """Refuse."""
        await self._refuse(context)

    async def _refuse(self, context: _Context) -> NoReturn:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._told())
        raise AssertionError("abort raises")
