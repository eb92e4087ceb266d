"""Processes forked from one that has imported everything already.

Importing torch takes seconds of a processor, and the tests start a coordinator, an agent, a
training process or a server of keyboards two hundred times. The commands themselves are started in
``test_operator.py``, ``test_real_devices.py``, ``test_passphrase.py`` and ``test_siege.py``.
"""

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, reduction
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "server.operating.running",
        "edge_client.cli",
        "edge_client.child.work",
        "export.serve.running",
        "export.serve.doors.grpc_face",
        "onnxruntime",
        # Loaded late, when the first network or the first epsilon is made: a second each time.
        "torch._dynamo",
        "dp_accounting.pld.privacy_loss_distribution",
        "scipy.optimize",
        "scipy.stats",
        __name__,
    ]
)


_receive_descriptors = reduction.recvfds


def _receive_or_pass_over(connection: socket.socket, size: int) -> list[int]:
    """Receive a client's descriptors, and pass over one killed before it sent them.

    The server would end of the ``EOFError``, and with it every later test of its worker; it goes on
    after a connection that was given up.
    """
    try:
        return _receive_descriptors(connection, size)
    except EOFError as error:
        raise ConnectionAbortedError(errno.ECONNABORTED, "the client was killed") from error


reduction.recvfds = _receive_or_pass_over  # type: ignore[assignment]  # untyped names


class ForkedCommand:
    """A command's process, with the part of ``subprocess.Popen`` that the tests use."""

    def __init__(self, main: Callable[[list[str]], int], arguments: list[str], log: Path) -> None:
        self._process = CONTEXT.Process(target=_run_command, args=(main, arguments, log))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run_command(main: Callable[[list[str]], int], arguments: list[str], log: Path) -> None:
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A process that was forked may have others forked by the same server, which it knows.
    setattr(forkserver._forkserver, "ensure_running", lambda: None)  # noqa: B010
    asyncio.create_subprocess_exec = _fork_child  # type: ignore[assignment]
    sys.exit(main(arguments))


async def _fork_child(*command: str, **_: Any) -> "_Child":
    """Fork what ``python -m edge_client.child`` would run."""
    assert command[-2:] == ("-m", "edge_client.child")
    jobs, ours = os.pipe()
    outcomes, theirs = os.pipe()
    process = CONTEXT.Process(target=_run_child, args=(DupFd(jobs), DupFd(theirs)), daemon=True)
    process.start()
    os.close(jobs)
    os.close(theirs)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(outcomes, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(ours, "wb", 0)
    )
    return _Child(process, asyncio.StreamWriter(transport, protocol, None, loop), reader)


class _Child:
    """The part of ``asyncio.subprocess.Process`` that a trainer uses."""

    def __init__(
        self, process: BaseProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process = process
        self.stdin = stdin
        self.stdout = stdout

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        with suppress(AttributeError):  # It has ended and was joined.
            self._process.kill()

    async def wait(self) -> int | None:
        await asyncio.to_thread(self._process.join)
        self.stdin.close()
        return self._process.exitcode


def _run_child(jobs: Any, outcomes: Any) -> None:
    from edge_client.child import __main__ as child

    os.dup2(jobs.detach(), 0)
    os.dup2(outcomes.detach(), 1)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    child.main()
