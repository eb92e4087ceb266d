"""Open an update while it arrives, so that a commit finds it open.

Its bytes go to the file from the same memory, and count only once that is durable. After an error
the commit opens the file.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from models.vector.codec import CodecError
from privacy.foundation.atomic_files import BytesLike
from privacy.sealing.envelope import Opener, UnsealError


class EarlyOpening:
    """One update that is being opened as its pieces come."""

    def __init__(self, opener: Opener, finish: Callable[[Opener | None], None]) -> None:
        """Call ``finish`` once, in the end, with the opener; with None if a piece did not open."""
        self._opener: Opener | None = opener
        self._finish: Callable[[Opener | None], None] | None = finish
        # A stream that broke is closed while its last piece may still be in a thread.
        self._lock = threading.Lock()

    def feed(self, piece: BytesLike) -> None:
        """Take the next piece; after the end, or after one that did not open, nothing happens."""
        with self._lock:
            if self._opener is not None and self._finish is not None:
                try:
                    self._opener.feed(piece)
                except UnsealError:
                    self._opener = None

    def close(self) -> None:
        """End: what is whole by now stays at hand."""
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                with suppress(UnsealError, CodecError):
                    finish(self._opener)
