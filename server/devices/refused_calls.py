"""Answer a refused call: one gRPC status, one stable code, one line, and no change of state.

The code in the trailing metadata (`protos.refusals`) alone decides what a device does next. A
failure without a code is a fault of the network, and devices try again. An unforeseen error is
answered with one line too, because its text could hold paths of this machine: the log has its
place.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from traceback import extract_tb
from typing import Any

import grpc

from privacy.foundation.full_disk import is_full
from privacy.foundation.shortages import is_out_of_descriptors
from protos.refusals import CODE_KEY, RefusalCode
from server.machine.refusals import TEXTS

_LOG = logging.getLogger(__name__)

DISK_FULL_TEXT = "the coordinator's disk is full; try again later"
BUSY_TEXT = "the coordinator has too many files open; try again later"
FAILED_TEXT = "the coordinator failed; its log says where"

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
    RefusalCode.TOO_SLOW: grpc.StatusCode.DEADLINE_EXCEEDED,
    RefusalCode.COORDINATOR_FAILED: grpc.StatusCode.INTERNAL,
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
    """Turn a refusal or a fault inside the block into the call's status and trailing metadata."""
    try:
        yield
    except RefusedError as refused:
        await _refuse(context, refused)
    except grpc.aio.BaseError:
        # An answer that was given already, or a connection that is gone.
        raise
    except Exception as error:
        await _refuse(context, _refusal_of(error))


# Any: as above.
async def _refuse(context: "grpc.aio.ServicerContext[Any, Any]", refused: RefusedError) -> None:
    await context.abort(
        _STATUS.get(refused.code, grpc.StatusCode.FAILED_PRECONDITION),
        refused.reason,
        trailing_metadata=((CODE_KEY, refused.code.value),),
    )


def _refusal_of(error: Exception) -> RefusedError:
    """Return what a caller is told of a failure; the log gets its kind and place."""
    shortage = shortage_refusal(error) if isinstance(error, OSError) else None
    if shortage is not None:
        return shortage
    place = extract_tb(error.__traceback__)[-1]
    _LOG.error("a call failed: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
    return RefusedError(RefusalCode.COORDINATOR_FAILED, FAILED_TEXT)


def shortage_refusal(error: OSError) -> RefusedError | None:
    """Return the refusal for a disk without room or too many open files; None for another fault."""
    if is_full(error):
        return RefusedError(RefusalCode.DISK_FULL, DISK_FULL_TEXT)
    if is_out_of_descriptors(error):
        return RefusedError(RefusalCode.RATE_LIMITED, BUSY_TEXT)
    return None
