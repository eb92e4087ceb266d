"""A question turned away: one gRPC status, one stable code, its fixed line, no change of state."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from traceback import extract_tb
from typing import Any

import grpc

from privacy.foundation.full_disk import is_full
from protos.helper_refusals import LINES, MOST_SLOTS_NAMED, SLOTS_KEY, HelperCode
from protos.refusals import CODE_KEY

_LOG = logging.getLogger(__name__)
_SLOT_BYTES = 4
_STATUS = {
    HelperCode.CALLER_UNKNOWN: grpc.StatusCode.PERMISSION_DENIED,
    HelperCode.TERMS_MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    HelperCode.TOO_MANY_ROUNDS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HelperCode.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HelperCode.TOO_SLOW: grpc.StatusCode.DEADLINE_EXCEEDED,
    HelperCode.HELPER_FAILED: grpc.StatusCode.INTERNAL,
}


class Refusal(Exception):  # noqa: N818  # an answer, not a fault
    """A refusal under way to the caller; ``slots`` are those of the members that it is about."""

    def __init__(self, code: HelperCode, slots: Iterable[int] = ()) -> None:
        self.code = code
        self.slots = tuple(sorted(slots))
        super().__init__(LINES[code])


# Any: the two message types differ for every method and neither matters here.
@asynccontextmanager
async def answering(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Turn a refusal or a fault inside the block into the call's status and trailing metadata."""
    try:
        yield
    except Refusal as refusal:
        await _refuse(context, refusal)
    except grpc.aio.BaseError:
        # An answer that was given already, or a connection that is gone.
        raise
    except Exception as error:
        await _refuse(context, _refusal_of(error))


# Any: as above.
async def _refuse(context: "grpc.aio.ServicerContext[Any, Any]", refusal: Refusal) -> None:
    _LOG.warning("refused: %s", refusal.code.value)
    trailing: list[tuple[str, str | bytes]] = [(CODE_KEY, refusal.code.value)]
    if refusal.slots:
        named = refusal.slots[:MOST_SLOTS_NAMED]
        trailing.append((SLOTS_KEY, b"".join(slot.to_bytes(_SLOT_BYTES) for slot in named)))
    status = _STATUS.get(refusal.code, grpc.StatusCode.FAILED_PRECONDITION)
    await context.abort(status, str(refusal), trailing_metadata=tuple(trailing))


def _refusal_of(error: Exception) -> Refusal:
    """Return what a caller is told of a failure; the log gets its kind and place."""
    is_full_store = getattr(error, "sqlite_errorname", None) == "SQLITE_FULL"
    if is_full_store or (isinstance(error, OSError) and is_full(error)):
        return Refusal(HelperCode.DISK_FULL)
    place = extract_tb(error.__traceback__)[-1]
    _LOG.error("a call failed: %s in %s:%s", type(error).__name__, place.filename, place.lineno)
    return Refusal(HelperCode.HELPER_FAILED)
