"""Keep the last release that a device received, where the next may come as what changed since.

It is everyone's model, nothing personal. The file, owner-only, is named after the digest of its
content: the resting agent trusts the name, and the training process checks it. No torch.
"""

import hashlib
from pathlib import Path

from privacy.foundation.atomic_files import BytesLike, sync_folder, write_atomically

_SUFFIX = ".release"
_DIGEST_BYTES = 32


class HeldReleaseError(Exception):
    """Raised when a release that a device held is not there any more, or damaged."""


class HeldRelease:
    """At most one held release."""

    def __init__(self, path: Path) -> None:
        """Use a folder; it is made, owner-only, with the first release."""
        self._path = path

    @property
    def sha256(self) -> bytes | None:
        """Return the digest of the flat parameters that are held, 32 bytes; None for none."""
        names = sorted(path.stem for path in self._path.glob(f"*{_SUFFIX}"))
        try:
            digests = [bytes.fromhex(name) for name in names]
        except ValueError:
            return None
        return digests[0] if len(digests) == 1 and len(digests[0]) == _DIGEST_BYTES else None

    def read(self, sha256: bytes) -> bytes:
        """Return a release's parameters, raw little-endian float32.

        Raises:
            HeldReleaseError: If it is not there, or damaged; then nothing is held any more.
        """
        try:
            held = self._file(sha256).read_bytes()
        except FileNotFoundError:
            raise HeldReleaseError(
                "the release held is gone; a whole one is fetched next"
            ) from None
        if hashlib.sha256(held).digest() != sha256:
            self.drop()
            raise HeldReleaseError("the release held is damaged; a whole one is fetched next")
        return held

    def keep(self, sha256: bytes, parameters: BytesLike) -> None:
        """Hold a release, raw little-endian float32, instead of the one before.

        Raises:
            OSError: If the disk is full; nothing or the release before is held then.
        """
        if self.sha256 == sha256:
            return
        if not self._path.exists():
            self._path.mkdir(mode=0o700)
            sync_folder(self._path.parent)
        # Whatever a power cut leaves of it is found out when it is read.
        write_atomically(self._file(sha256), parameters, flush=False)
        for path in self._path.glob(f"*{_SUFFIX}"):
            if path != self._file(sha256):
                path.unlink(missing_ok=True)

    def drop(self) -> None:
        """Hold nothing."""
        for path in self._path.glob(f"*{_SUFFIX}"):
            path.unlink(missing_ok=True)

    def _file(self, sha256: bytes) -> Path:
        return self._path / f"{sha256.hex()}{_SUFFIX}"
