"""Hand memory back to the system while a crowd sends, and after a crowd of connections has left.

The allocator keeps what is freed, because the next round asks for the same again. No round asks for
what a crowd of strangers needed: a thousand connections that never say who they are take 45 MB. And
what each of a crowd's updates leaves between two pieces of others would add up to 300 MB.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from privacy.foundation.memory_pool import hand_back_freed_memory
from server.records.threads import Threads

# More often than a handshake's time ends, so that no crowd comes and goes unseen.
_LOOK_EVERY_S = 5.0
_IN_A_CROWD_S = 1.0
_CROWD = 128


async def hand_back_after_crowds(
    threads: Threads,
    *,
    is_crowded: Callable[[], bool],
    look_every_s: float = _LOOK_EVERY_S,
    crowd: int = _CROWD,
) -> None:
    """Look at the open descriptors until cancelled; memory goes once ``crowd`` fewer are open.

    It goes too, every second, for as long as ``is_crowded`` says that transfers wait for a place.
    """
    most = 0
    while True:
        # Out of descriptors there is none to look with either.
        with suppress(OSError):
            count = await threads.run(_open_descriptors)
            most = max(most, count)
            if most - count >= crowd:
                await threads.run(hand_back_freed_memory)
                most = count
        if is_crowded():
            await threads.run(hand_back_freed_memory)
            await asyncio.sleep(min(look_every_s, _IN_A_CROWD_S))
            continue
        await asyncio.sleep(look_every_s)


def _open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208  # a count of thousands needs no paths
