"""What a coordinator's refusal means to a device: try again, start over, or stop.

A refusal carries a stable code in the trailing metadata under ``sotto-code``. A failure without a
code is the network's, and is tried again.
"""

from collections.abc import Sequence

import grpc

CODE_KEY = "sotto-code"

# Sealed to a key that the other side no longer has, or damaged on the way.
UNSEAL_FAILED = "unseal_failed"

# These cannot get better by waiting: a person must act.
FATAL_CODES = frozenset(
    {
        "certificate_expired",
        "certificate_revoked",
        "certificate_unknown",
        "clock_wrong",
        "identity_in_use",
        "token_invalid",
        "token_used",
        "token_expired",
        "version_mismatch",
    }
)


class RefusedError(Exception):
    """Raised when the coordinator refuses a call.

    Attributes:
        code: Stable snake_case code.
        reason: The coordinator's one line.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the coordinator refused ({code}): {reason}")
        self.code = code
        self.reason = reason

    @property
    def is_fatal(self) -> bool:
        """Return whether waiting cannot help."""
        return self.code in FATAL_CODES


class UnreachableError(Exception):
    """Raised when the coordinator cannot be reached or the connection broke."""


def failure_of(error: grpc.aio.AioRpcError) -> RefusedError | UnreachableError:
    """Return the refusal that a failed call carries, or say that the network failed."""
    code = refusal_code(error.trailing_metadata())
    if code is None:
        return UnreachableError(f"{error.code().name.lower()}: {error.details()}")
    return RefusedError(code, error.details() or "no reason given")


def refusal_code(
    metadata: Sequence[tuple[str, str | bytes]] | grpc.aio.Metadata | None,
) -> str | None:
    """Return the ``sotto-code`` of trailing metadata, or None."""
    for key, value in metadata or ():
        if key == CODE_KEY:
            return value.decode() if isinstance(value, bytes) else value
    return None
