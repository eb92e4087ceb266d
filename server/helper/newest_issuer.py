"""The newest issuing key that has certified a caller: those of an earlier one are refused.

A stolen issuing key is replaced long before it ends (`sotto-server rotate-issuing-key`). From the
next call on nobody asks this helper with what the former key certified.
"""

import math
from pathlib import Path

import msgspec

from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json
from privacy.identities.certificates import CertifiedKey, fingerprint
from protos.helper_refusals import HelperCode
from server.helper.refusal import Refusal


class NewestIssuerError(Exception):
    """Raised when the file cannot be read; the text says what to do."""


class _Met(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The issuing key, by when it began in Unix seconds, and the authority that certified it."""

    authority_sha256: str
    began: float


class NewestIssuer:
    """What one helper remembers of its callers' issuing keys, in a file."""

    def __init__(self, path: Path, authority: bytes) -> None:
        """Read the file, if there is one; ``authority`` is the helper's, DER.

        Raises:
            NewestIssuerError: If the file is damaged.
            OSError: If it cannot be read.
        """
        self._path = path
        self._authority = fingerprint(authority).hex()
        self._began = -math.inf
        try:
            met = read_json(path, _Met, at_most=LARGEST_RECORD_BYTES)
        except FileNotFoundError:
            return
        except msgspec.DecodeError as error:
            raise NewestIssuerError(
                f"{path} cannot be read: {error}; remove it, and the next caller's issuing key is "
                "taken for the newest"
            ) from None
        # An authority that succeeded another begins anew.
        if met.authority_sha256 == self._authority:
            self._began = met.began

    def check(self, caller: CertifiedKey) -> None:
        """Refuse a caller of an issuing key before the newest, else remember its own; blocks."""
        began = caller.issuing_not_before
        if began < self._began:
            raise Refusal(HelperCode.CALLER_UNKNOWN)
        if began > self._began:
            met = _Met(authority_sha256=self._authority, began=began)
            write_atomically(self._path, msgspec.json.encode(met))
            self._began = began
