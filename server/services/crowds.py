"""Hand memory back to the system after a crowd of connections has left.

The allocator keeps what is freed, because the next round asks for the same again. No round asks for
what a crowd of strangers needed: a thousand connections that never say who they are take 45 MB.
"""

import asyncio
import os
from contextlib import suppress

from privacy.foundation.memory_pool import hand_back_freed_memory
from server.records.threads import Threads

# More often than a handshake's time ends, so that no crowd comes and goes unseen.
_LOOK_EVERY_S = 5.0
_CROWD = 128


async def hand_back_after_crowds(
    threads: Threads, *, look_every_s: float = _LOOK_EVERY_S, crowd: int = _CROWD
) -> None:
    """Look at the open descriptors until cancelled; memory goes once ``crowd`` fewer are open."""
    most = 0
    while True:
        # Out of descriptors there is none to look with either.
        with suppress(OSError):
            count = await threads.run(_open_descriptors)
            most = max(most, count)
            if most - count >= crowd:
                await threads.run(hand_back_freed_memory)
                most = count
        await asyncio.sleep(look_every_s)


def _open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208  # a count of thousands needs no paths
