"""Many equal records kept on disk for a while, sealed under a key that never leaves memory.

A robust aggregation rule reads a cohort's updates more than once, a piece of each at a time, and
they are too many to be held. Meanwhile the disk must hold nothing of use to anybody who finds it:
the file has no name, so it is gone with the process, and its pieces are AES-256-GCM under a fresh
key that is dropped with the spool. Each piece has its own nonce (its place in the file, never
written twice), so pieces cannot be exchanged either.

References:
    NIST SP 800-38D (GCM; nonces by a counter, section 8.2.1).
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from privacy.foundation.atomic_files import BytesLike

_TAG_BYTES = 16
_NONCE_BYTES = 12


class SpoolError(RuntimeError):
    """Raised when a kept piece is not what was written: the disk has failed or was changed."""


class SealedSpool:
    """Records of pieces of fixed sizes; pieces are written in order and read in any."""

    def __init__(self, piece_bytes: Sequence[int], *, folder: Path | None = None) -> None:
        """Make an empty file in ``folder``, or else where temporary files lie."""
        self._sizes = tuple(piece_bytes)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # kept open
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=256))
        self._written = 0

    @property
    def record_count(self) -> int:
        """Return how many whole records are kept."""
        return self._written // max(1, len(self._sizes))

    def append(self, piece: BytesLike) -> None:
        """Keep the next piece: the next of the record under way, or the first of a new one.

        Raises ValueError if it has another size than its place, OSError if the disk is full.
        """
        wanted = self._sizes[self._written % len(self._sizes)]
        if memoryview(piece).nbytes != wanted:
            raise ValueError(f"the piece must have {wanted} bytes, got {memoryview(piece).nbytes}")
        left = memoryview(self._cipher.encrypt(self._nonce(self._written), piece, None))
        while left:  # A write may take a part only.
            left = left[self._file.write(left) :]
        self._written += 1

    def read(self, record: int, piece: int) -> bytes:
        """Return a piece of a record; SpoolError if it is not what was written."""
        if not (0 <= record < self.record_count and 0 <= piece < len(self._sizes)):
            raise IndexError(f"there is no piece {piece} of record {record}")
        place = record * len(self._sizes) + piece
        start = record * self._sealed_bytes(len(self._sizes)) + self._sealed_bytes(piece)
        sealed = os.pread(self._file.fileno(), self._sizes[piece] + _TAG_BYTES, start)
        try:
            return self._cipher.decrypt(self._nonce(place), sealed, None)
        except InvalidTag:
            raise SpoolError("a kept update can no longer be read; look at the disk") from None

    def close(self) -> None:
        """Let the file and the key go."""
        self._file.close()

    def _sealed_bytes(self, pieces: int) -> int:
        return sum(self._sizes[:pieces]) + pieces * _TAG_BYTES

    @staticmethod
    def _nonce(place: int) -> bytes:
        return place.to_bytes(_NONCE_BYTES, "big")
