"""Read files from outside no further than a bound, so that a file cannot fill the memory."""

import errno
import os
from pathlib import Path

LARGEST_SETTINGS_BYTES = 128 << 10
"""Far more than a file of settings with all its comments, and less than a second to parse."""

LARGEST_CERTIFICATE_BYTES = 64 << 10
"""A bound for a file of certificates; one has a kilobyte, and two in a text form three."""


class FileTooLargeError(OSError):
    """Raised when a file is larger than what stands in it can be; one of the errors of reading."""


def read_bounded(path: Path, at_most: int) -> bytes:
    """Return a file's content, which must have at most ``at_most`` bytes.

    Raises:
        FileTooLargeError: If it has more; ``strerror`` names the bound.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        # Asked of what was opened: a pipe or a device has no size, and is read up to the bound.
        if os.fstat(file.fileno()).st_size <= at_most:
            content = file.read(at_most + 1)
            if len(content) <= at_most:
                return content
    raise FileTooLargeError(errno.EFBIG, f"it must have at most {at_most} bytes", str(path))
