"""Shortages that pass by themselves: a disk without room, or too many open files.

A process that meets one waits and tries again. An interrupted call (EINTR) never gets here: Python
repeats it itself.
"""

import errno
import resource
import sys

from privacy.foundation.full_disk import is_full

_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)


def is_out_of_descriptors(error: OSError) -> bool:
    """Return whether a call failed because this process or the machine has too many open files."""
    return error.errno in _TOO_MANY_FILES


def is_shortage(error: OSError) -> bool:
    """Return whether the same call can succeed later, with nothing changed but room."""
    return is_full(error) or is_out_of_descriptors(error)


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard one, and return it.

    Shells and containers often start with 1,024 beside a far higher hard limit. No limit at all is
    the largest number.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return sys.maxsize if most == resource.RLIM_INFINITY else most
