"""Answer a refused call: one gRPC status, one stable code, one line, and no change of state.

The code in the trailing metadata (`protos.refusals`) alone decides what a device does next. A
failure without a code is a fault of the network or of this process, and devices try again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from privacy.foundation.full_disk import is_full
from protos.refusals import CODE_KEY, RefusalCode
from server.machine.refusals import TEXTS

DISK_FULL_TEXT = "the coordinator's disk is full; try again later"

_UNAUTHENTICATED = (
    RefusalCode.TOKEN_INVALID,
    RefusalCode.TOKEN_USED,
    RefusalCode.TOKEN_EXPIRED,
    RefusalCode.CERTIFICATE_UNKNOWN,
    RefusalCode.CERTIFICATE_REVOKED,
    RefusalCode.CERTIFICATE_EXPIRED,
)
_INVALID = (
    RefusalCode.WRONG_SIZE,
    RefusalCode.CHUNK_SIZE,
    RefusalCode.UNSEAL_FAILED,
    RefusalCode.MALFORMED_UPDATE,
    RefusalCode.EXAMPLE_COUNT,
    RefusalCode.COUNTS,
    RefusalCode.SIGNING_REQUEST,
)
_STATUS = {
    **dict.fromkeys(_UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED),
    **dict.fromkeys(_INVALID, grpc.StatusCode.INVALID_ARGUMENT),
    RefusalCode.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCode.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalCode.DRAINING: grpc.StatusCode.UNAVAILABLE,
    RefusalCode.COMMIT_RUNNING: grpc.StatusCode.UNAVAILABLE,
    RefusalCode.DUPLICATE: grpc.StatusCode.ALREADY_EXISTS,
    RefusalCode.UNKNOWN_LEASE: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_VOCABULARY: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_CLIENT: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UNKNOWN_PART: grpc.StatusCode.NOT_FOUND,
    RefusalCode.UPLOAD_SUPERSEDED: grpc.StatusCode.ABORTED,
    RefusalCode.IDENTITY_IN_USE: grpc.StatusCode.ABORTED,
    RefusalCode.WRONG_OFFSET: grpc.StatusCode.OUT_OF_RANGE,
}


class RefusedError(Exception):
    """Raised when a message is turned away; no state has changed."""

    def __init__(self, code: RefusalCode, reason: str | None = None) -> None:
        """Refuse with a line for the person at the other end; by default with the code's text."""
        self.code = code
        self.reason = reason or TEXTS.get(code, code.value.replace("_", " "))
        super().__init__(self.reason)


# Any: the two message types differ for every method and neither matters here.
@asynccontextmanager
async def answering(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Turn a refusal inside the block into the call's status and trailing metadata."""
    try:
        yield
    except RefusedError as refused:
        await context.abort(
            _STATUS.get(refused.code, grpc.StatusCode.FAILED_PRECONDITION),
            refused.reason,
            trailing_metadata=((CODE_KEY, refused.code.value),),
        )


def disk_refusal(error: OSError) -> RefusedError | None:
    """Return the refusal for a disk without room, or None for any other failure."""
    if is_full(error):
        return RefusedError(RefusalCode.DISK_FULL, DISK_FULL_TEXT)
    return None
