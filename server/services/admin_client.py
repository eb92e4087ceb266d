"""Talk to a running coordinator over its owner-only socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import grpc

from protos import federation_pb2_grpc as pb_grpc


class NotRunningError(Exception):
    """Raised when nobody answers on the socket."""


class AdminCallError(Exception):
    """Raised when the coordinator refuses; the text is its one line."""


@contextmanager
def admin_stub(socket: Path) -> Iterator[pb_grpc.AdminStub]:
    """Lend a stub of the Admin service.

    Raises:
        NotRunningError: If nobody listens there.
        AdminCallError: If the coordinator refuses a call inside the block.
    """
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        try:
            yield pb_grpc.AdminStub(channel)
        except grpc.RpcError as error:
            # The cast: every error of a call that was made is also that call, which mypy rules out.
            call = cast("grpc.Call", error)
            if call.code() is grpc.StatusCode.UNAVAILABLE:
                raise NotRunningError(f"no coordinator answers on {socket}") from None
            raise AdminCallError(call.details() or call.code().name) from None
