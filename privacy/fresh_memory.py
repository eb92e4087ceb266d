"""Take memory for a payload without paying for its first touch twice."""

import mmap

# Below this the C library mostly gives out memory that was used before.
_LEAST_MAPPED_BYTES = 1 << 20


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
