"""Read files from outside no further than a bound, so that a file cannot fill the memory."""

import errno
import os
from pathlib import Path

LARGEST_SETTINGS_BYTES = 128 << 10
"""Far more than a file of settings with all its comments, and less than a second to parse."""

LARGEST_CERTIFICATE_BYTES = 64 << 10
"""A bound for a file of certificates; one has a kilobyte, and two in a text form three."""

_PIECE_BYTES = 1 << 16


class FileTooLargeError(OSError):
    """Raised when a file is larger than what stands in it can be; one of the errors of reading."""


def read_bounded(path: Path, at_most: int) -> bytes:
    """Return a file's content, which must have at most ``at_most`` bytes.

    Raises:
        FileTooLargeError: If it has more; ``strerror`` names the bound.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= at_most:
            # Never asked for the bound itself: Python takes the memory that a read may need.
            content = file.read(size + 1)
            while len(content) <= at_most:
                # A file that grew meanwhile, or a pipe, which has no size.
                piece = file.read(_PIECE_BYTES) if len(content) > size else b""
                if not piece:
                    return content
                content += piece
    raise FileTooLargeError(errno.EFBIG, f"it must have at most {at_most} bytes", str(path))
