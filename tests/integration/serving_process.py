"""A coordinator in a process of its own (``tests/integration/forking.py``)."""

import asyncio
import logging
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from server.config.federation import read_config
from server.records.failpoints import Failpoints
from server.records.folder import ServerFolder
from tests.integration.forking import CONTEXT

START_TIMEOUT_S = 60.0


def start_serving(root: Path, log: Path, failpoint: str | None) -> BaseProcess:
    """Start a coordinator and return when it listens; it dies at the failpoint, if one is given."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_serve, args=(root, log, failpoint, theirs), daemon=True)
    process.start()
    theirs.close()
    with ours:
        assert ours.poll(START_TIMEOUT_S), "the coordinator does not listen"
        try:
            ours.recv()
        except EOFError:
            raise AssertionError(log.read_text()) from None
    return process


def _serve(root: Path, log: Path, failpoint: str | None, ready: "Connection[None, None]") -> None:
    from server.operating.running import Ports, serve

    logging.basicConfig(filename=log, level=logging.INFO)
    folder = ServerFolder(root)

    def announce(_: Ports) -> None:
        ready.send(None)
        ready.close()

    asyncio.run(
        serve(
            folder,
            read_config(folder.config),
            failpoints=Failpoints(failpoint),
            on_ready=announce,
        )
    )
