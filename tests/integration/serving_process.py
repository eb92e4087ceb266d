"""A coordinator in a process of its own (``tests/forking.py``)."""

import asyncio
import gc
import logging
import os
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple, TypeVar

from server.config.federation import read_config
from server.config.listen import ListenSettings
from server.devices.paced_call import PacedCall
from server.records.failpoints import Failpoints
from server.records.folder import ServerFolder
from tests.forking import CONTEXT

Part = TypeVar("Part")
START_TIMEOUT_S = 60.0
PATIENT_S = 40.0
LEAP_S = 600.0
"""How far a coordinator's clocks leap when a test sends it SIGUSR1."""


class Machine(NamedTuple):
    """One of several machines: its folder for sockets, its ports, and how long it may be silent.

    A leader that is not heard of for longer, be it because the machine is busy, has to go.
    """

    runtime: Path
    enrolment: int
    devices: int
    metrics: int
    patience_s: float = PATIENT_S

    @property
    def listen(self) -> ListenSettings:
        return ListenSettings(
            enrolment=f"127.0.0.1:{self.enrolment}",
            devices=f"127.0.0.1:{self.devices}",
            metrics=f"127.0.0.1:{self.metrics}",
        )


def start_serving(root: Path, log: Path, failpoint: str | None) -> BaseProcess:
    """Start a coordinator and return when it listens; it dies at the failpoint, if one is given."""
    process, ready = begin_serving(root, log, failpoint)
    with ready:
        assert ready.poll(START_TIMEOUT_S), "the coordinator does not listen"
        try:
            ready.recv()
        except EOFError:
            raise AssertionError(log.read_text()) from None
    return process


def begin_serving(
    root: Path, log: Path, failpoint: str | None, machine: Machine | None = None
) -> tuple[BaseProcess, "Connection[None, None]"]:
    """Start a coordinator and return what tells when it listens."""
    ours, theirs = CONTEXT.Pipe(duplex=False)
    arguments = (root, log, failpoint, theirs, machine)
    process = CONTEXT.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(
    root: Path,
    log: Path,
    failpoint: str | None,
    ready: "Connection[None, None]",
    machine: Machine | None,
) -> None:
    from server.operating.running import Ports, serve
    from server.records import leadership, store

    logging.basicConfig(filename=log, level=logging.INFO)
    if machine is not None:
        os.environ["XDG_RUNTIME_DIR"] = str(machine.runtime)
        for module in (leadership, store):
            setattr(module, "SILENCE_MS", round(1000 * (machine.patience_s + 1)))  # noqa: B010
        setattr(leadership, "PATIENCE_S", machine.patience_s)  # noqa: B010  # it is final
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
    folder = ServerFolder(root)

    def announce(_: Ports) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _leap)
        ready.send(None)
        ready.close()

    asyncio.run(
        serve(
            folder,
            read_config(folder.config),
            listen=None if machine is None else machine.listen,
            failpoints=Failpoints(failpoint),
            on_ready=announce,
        )
    )


def _leap() -> None:
    """Set this process's clocks, its event loop's among them, ahead.

    A call that is under way lost no time by it.
    """
    for name in ("monotonic", "time"):
        before = getattr(time, name)
        setattr(time, name, lambda before=before: before() + LEAP_S)
    for call in living(PacedCall):
        call.moved()


def living(kind: type[Part]) -> list[Part]:
    """Return what lives of a kind in this process, whose parts nobody hands out."""
    return [each for each in gc.get_objects() if type(each) is kind]
