"""Ctrl-C ends a coordinator whatever else happens in that moment."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from server.config.federation import read_config
from server.records.folder import ServerFolder
from tests.forking import CONTEXT
from tests.integration.conftest import Make
from tests.integration.serving_process import living

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("turns", range(5))
def test_an_interrupt_that_comes_with_a_change_is_not_lost(
    make_federation: Make, turns: int
) -> None:
    federation = make_federation()

    process = CONTEXT.Process(target=_serve, args=(federation.root, turns), daemon=True)
    process.start()
    process.join(60)
    code = process.exitcode
    process.kill()

    assert code == 0


def _serve(root: Path, turns: int) -> None:
    """Serve, and interrupt it so many turns of its loop after it was told of a change."""
    from server.coordinating.coordinator import Coordinator
    from server.operating.running import Ports, serve

    def change() -> None:
        [coordinator] = living(Coordinator)
        coordinator.resume()
        interrupt_after(turns)

    def interrupt_after(left: int) -> None:
        loop = asyncio.get_running_loop()
        if left == 0:
            # What the loop calls when the signal is delivered, at this turn and no later one.
            handle = loop._signal_handlers[signal.SIGINT]  # type: ignore[attr-defined]
            handle._run()
        else:
            loop.call_soon(interrupt_after, left - 1)

    def ready(_: Ports) -> None:
        asyncio.get_running_loop().call_later(0.2, change)

    folder = ServerFolder(root)
    logging.basicConfig(filename=os.devnull)
    asyncio.run(serve(folder, read_config(folder.config), on_ready=ready))
