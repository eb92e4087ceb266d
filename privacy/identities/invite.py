"""The invite: the one file that an operator hands to a device so that it can enrol.

It names the coordinator's two addresses, and those of machines that stand by for it; it pins the
federation's certificate authority, and carries a single-use token. It is a secret until it has been
used: the file is owner-only and the token never appears on a command line.
"""

import hashlib
import math
import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from privacy.foundation.host_port import checked_addresses
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json

INVITE_VERSION: Final = 1
TOKEN_BYTES = 16


class InviteError(ValueError):
    """Raised when a file is no usable invite; the text says why."""


class OtherAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further machine at which the coordinator may be found, by its two listeners."""

    enrolment_address: str
    device_address: str


class Invite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a device needs before it has an identity.

    Attributes:
        format_version: Version of this struct.
        run: Identifier of the run, 32 hex digits.
        enrolment_address: ``host:port`` of the listener that enrols (server TLS only).
        device_address: ``host:port`` of the listener for enrolled devices (mutual TLS).
        ca_certificate: The federation's CA certificate, base64 of its DER.
        ca_sha256: Hex SHA-256 of that DER, for people to compare.
        token: 16 random bytes in hex; single use.
        expires_at: When the token expires, seconds since 1970 UTC.
        helper_certificate: The chain, DER, of the wrapping certificate of the helper that holds
            masks; absent from an invite of a federation without masks.
        other_addresses: Where the coordinator may be found besides, in order; absent from an
            invite of a federation with one address.
    """

    format_version: Literal[1] = INVITE_VERSION
    run: str
    enrolment_address: str
    device_address: str
    ca_certificate: bytes
    ca_sha256: str
    token: str
    expires_at: float
    # Absent, not null: devices from before masks refuse what they do not know.
    helper_certificate: bytes | msgspec.UnsetType = msgspec.UNSET
    other_addresses: tuple[OtherAddress, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        checked_addresses("enrolment_address", self.enrolment_addresses)
        checked_addresses("device_address", self.device_addresses)
        if hashlib.sha256(self.ca_certificate).hexdigest() != self.ca_sha256:
            raise ValueError("ca_sha256 must be the digest of ca_certificate; the file was changed")
        # The token is a secret: the message must not repeat it.
        if not re.fullmatch(f"[0-9a-f]{{{2 * TOKEN_BYTES}}}", self.token):
            raise ValueError(f"token must be {2 * TOKEN_BYTES} lower-case hex digits")
        if not 0 < self.expires_at < math.inf:
            raise ValueError(f"expires_at must be > 0 and finite, got {self.expires_at}")

    @property
    def helper(self) -> bytes | None:
        """Return the helper's wrapping certificate, DER; None without masks."""
        given = self.helper_certificate
        return None if isinstance(given, msgspec.UnsetType) else given

    @property
    def enrolment_addresses(self) -> tuple[str, ...]:
        """Return every listener that enrols, the preferred one first."""
        return (self.enrolment_address, *(other.enrolment_address for other in self._others))

    @property
    def device_addresses(self) -> tuple[str, ...]:
        """Return every listener for enrolled devices, the preferred one first."""
        return (self.device_address, *(other.device_address for other in self._others))

    @property
    def _others(self) -> tuple[OtherAddress, ...]:
        given = self.other_addresses
        return () if isinstance(given, msgspec.UnsetType) else given

    def encode(self) -> bytes:
        """Return the invite as JSON for a file."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def read_invite(path: Path) -> Invite:
    """Read an invite file, strictly; InviteError if it is none of this version."""
    try:
        return read_json(path, Invite, at_most=LARGEST_RECORD_BYTES)
    except OSError as error:
        raise InviteError(f"cannot read invite {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise InviteError(f"{path} is no invite: {error}") from None
