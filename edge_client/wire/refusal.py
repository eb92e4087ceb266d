"""The meaning of a coordinator's refusal to a device: try again, start over, or stop.

A failure without a code (`protos.refusals`) is the network's, and is tried again; so is one whose
code says that nothing was decided.
"""

from collections.abc import Sequence

import grpc

from protos.refusals import CODE_KEY, RefusalCode

# These cannot get better by waiting: a person must act.
FATAL_CODES = frozenset(
    {
        RefusalCode.CERTIFICATE_EXPIRED,
        RefusalCode.CERTIFICATE_REVOKED,
        RefusalCode.CERTIFICATE_UNKNOWN,
        RefusalCode.CLOCK_WRONG,
        RefusalCode.IDENTITY_IN_USE,
        RefusalCode.TOKEN_INVALID,
        RefusalCode.TOKEN_USED,
        RefusalCode.TOKEN_EXPIRED,
        RefusalCode.VERSION_MISMATCH,
    }
)

# As if the connection had broken: nothing was decided, and what is sealed is kept.
FAULT_CODES = frozenset({RefusalCode.TOO_SLOW, RefusalCode.COORDINATOR_FAILED})


class RefusedError(Exception):
    """Raised when the coordinator refuses; a newer one may send codes beyond ``RefusalCode``."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the coordinator refused ({code}): {reason}")
        self.code = code
        self.reason = reason

    @property
    def is_fatal(self) -> bool:
        """Return whether waiting cannot help."""
        return self.code in FATAL_CODES


class UnreachableError(Exception):
    """Raised when the coordinator cannot be reached or the connection broke.

    Attributes:
        is_network: Whether the network failed; False where the coordinator answered, and what it
            answered was no refusal.
    """

    def __init__(self, reason: str, *, is_network: bool = False) -> None:
        super().__init__(reason)
        self.is_network = is_network


def failure_of(error: grpc.aio.AioRpcError) -> RefusedError | UnreachableError:
    """Return the refusal that a failed call carries, or say that the network failed."""
    code = refusal_code(error.trailing_metadata())
    if code is None or code in FAULT_CODES:
        return UnreachableError(
            f"{error.code().name.lower()}: {error.details()}",
            is_network=error.code() is grpc.StatusCode.UNAVAILABLE,
        )
    return RefusedError(code, error.details() or "no reason given")


def refusal_code(
    metadata: Sequence[tuple[str, str | bytes]] | grpc.aio.Metadata | None,
) -> str | None:
    """Return the code in trailing metadata, or None."""
    for key, value in metadata or ():
        if key == CODE_KEY:
            return value.decode() if isinstance(value, bytes) else value
    return None
