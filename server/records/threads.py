"""Do what takes time in threads, while the event loop serves others."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

_Result = TypeVar("_Result")


class Threads:
    """The threads of one coordinator."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return or raise what ``work`` does in a thread; cancelling does not stop it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
