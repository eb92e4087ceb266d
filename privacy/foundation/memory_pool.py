"""Memory for a payload without paying for its first touch twice."""

import contextlib
import ctypes
import mmap

# Below this the C library mostly gives out memory that was used before.
_LEAST_MAPPED_BYTES = 1 << 20
# Numbers of glibc's mallopt(3), and the values given to it, in bytes.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_TRIM_BYTES = 1 << 30
_MMAP_BYTES = 32 << 20  # the largest that glibc takes


def fresh_memory(size: int) -> memoryview:
    """Return zeroed, writable memory that is only taken from the system as it is written.

    Large pages make the first touch several times faster where the system has them.
    """
    if size < _LEAST_MAPPED_BYTES:
        return memoryview(bytearray(size))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def keep_freed_memory() -> None:
    """Let this process's allocator keep what is freed: the next round asks for the same again.

    Handing memory back to the system and having every page zeroed anew takes up to a third of a
    training step, and half of sealing a model. A pool of memory for each thread would hold as many
    models as there are threads, so one serves them all. For entry points only: it is the process's
    own.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # another C library than glibc: nothing to set
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    mallopt(_M_ARENA_MAX, 1)


def hand_back_freed_memory() -> None:
    """Give the system every page that is free at this moment; the next round pays for its own."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
