"""Let signals end a coordinator: after its round, or at once."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from server.coordinating.coordinator import Coordinator


@contextlib.contextmanager
def stopping_on_signals(coordinator: Coordinator, running: "asyncio.Task[None]") -> Iterator[None]:
    """Drain on SIGTERM; stop at once on SIGINT or a second SIGTERM."""
    loop = asyncio.get_running_loop()
    drained: list[bool] = []

    def terminate() -> None:
        if drained:
            running.cancel()
        drained.append(True)
        coordinator.drain()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(signal.SIGINT, running.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
