"""Keep the sealed update of a lease until the coordinator has acknowledged it.

The same sealed bytes are sent again after any interruption, so a retry can never count twice and
never shows the coordinator two versions of one update.
"""

import contextlib
from pathlib import Path
from typing import Literal

import msgspec

from privacy.foundation.atomic_files import sync_file, write_atomically
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json
from protos import federation_pb2 as wire


class KeptUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sealed update that waits for its acknowledgement.

    Attributes:
        deadline_ms: The lease's deadline, bound into the sealed update.
        base_sha256: Digest of the parameters it starts from.
        message_id: Names the sealed update at the coordinator.
        example_count: Target tokens trained on; 0 under a guarantee and of an embedding.
        kind: The update of a round, or an embedding that was fitted.
    """

    lease_nonce: bytes
    deadline_ms: int
    base_sha256: bytes
    message_id: bytes
    example_count: int = 0
    kind: Literal["update", "embedding"] = "update"

    def answers(self, lease: wire.Lease) -> bool:
        """Return whether this update was made for exactly this lease."""
        return (self.lease_nonce, self.deadline_ms, self.base_sha256) == (
            lease.nonce,
            lease.deadline_ms,
            lease.base_sha256,
        )


class Outbox:
    """A folder with at most one sealed update."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``, which is made, owner-only, where it is missing."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.sealed_update = folder / "update.sealed"
        self._description = folder / "update.json"

    def keep(self, update: KeptUpdate) -> None:
        """Remember that ``sealed_update`` is complete; both survive a crash from here on."""
        sync_file(self.sealed_update)
        write_atomically(self._description, msgspec.json.encode(update))

    def kept(self) -> KeptUpdate | None:
        """Return the update that is kept, for whatever lease it was made."""
        try:
            kept = read_json(self._description, KeptUpdate, at_most=LARGEST_RECORD_BYTES)
        except (FileNotFoundError, msgspec.DecodeError):
            # A description that is half there belongs to an update that was never promised.
            return None
        return kept if self.sealed_update.exists() else None

    def kept_for(self, lease: wire.Lease) -> KeptUpdate | None:
        """Return the update made for this lease, dropping one made for any other."""
        kept = self.kept()
        if kept is not None and kept.answers(lease):
            return kept
        self.clear()
        return None

    def clear(self) -> None:
        """Forget the update; its bytes are of no more use."""
        for path in (self._description, self.sealed_update):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
