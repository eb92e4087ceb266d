"""Let signals end a coordinator: after its round, or at once."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator

from server.coordinating.coordinator import Coordinator

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def stopping_on_signals(coordinator: Coordinator, running: "asyncio.Task[None]") -> Iterator[None]:
    """Drain on SIGTERM; stop at once on SIGINT or a second SIGTERM."""
    loop = asyncio.get_running_loop()
    drained: list[bool] = []

    def terminate() -> None:
        if drained:
            running.cancel()
            return
        drained.append(True)
        coordinator.drain()
        standing = coordinator.standing()
        if standing.remaining_s:
            # A round can have an hour left, and a silent process looks as if it did not listen.
            _LOG.warning(
                "ending after round %d, due in %.0f s; a second SIGTERM, or Ctrl-C, ends it now",
                standing.round_number,
                standing.remaining_s,
            )

    loop.add_signal_handler(signal.SIGTERM, terminate)
    loop.add_signal_handler(signal.SIGINT, running.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
