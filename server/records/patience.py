"""Wait out a shortage: a full disk, or too many open files, ends neither a round nor a process.

Each step of a round that writes is done again, as it is at a start after a crash, until there is
room. Calls of devices do not wait: they are refused, and devices come again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from privacy.foundation.shortages import is_out_of_descriptors, is_shortage

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_Result = TypeVar("_Result")


async def until_possible(step: str, work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Return what ``work`` does, which is done again for as long as it meets a shortage.

    ``step`` is what waits, for the log, as in "the close of round 3". The work leaves nothing
    behind that its repetition would trip over.
    """
    pause_s, has_waited = _FIRST_PAUSE_S, False
    while True:
        try:
            result = await work()
        except OSError as error:
            if not is_shortage(error):
                raise
            if not has_waited:
                lack = "descriptors" if is_out_of_descriptors(error) else "room on the disk"
                _LOG.error("%s waits for %s, and goes on by itself; nothing is lost", step, lack)
            has_waited = True
        else:
            if has_waited:
                _LOG.warning("%s went on", step)
            return result
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
