"""Start a federation's processes and make sure that none outlives this one."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

STOP_TIMEOUT_S = 10.0


class ProcessFailedError(Exception):
    """Raised when a command ends with an error; holds what it wrote to stderr."""


def sotto(command: str, *arguments: str | Path) -> list[str]:
    """Return the command line of ``sotto-COMMAND``, as installed beside this Python."""
    return [str(Path(sys.executable).with_name(f"sotto-{command}")), *map(str, arguments)]


def run(command: list[str]) -> str:
    """Run a command to its end and return what it printed.

    Raises:
        ProcessFailedError: If it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessFailedError(done.stderr.strip() or f"{command} failed")
    return done.stdout


@contextmanager
def run_beside(*commands: list[str]) -> Iterator[None]:
    """Run commands side by side, and beside the block, which ends when they all have.

    Raises:
        ProcessFailedError: If one fails.
    """
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        yield
    finally:
        told = [process.communicate()[1].strip() for process in started]
    failures = [
        line for line, process in zip(told, started, strict=True) if process.returncode != 0
    ]
    if failures:
        raise ProcessFailedError(failures[0])


@contextmanager
def running(
    commands: dict[str, list[str]], logs: Path
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run commands until the block ends, whatever ends it; each writes to ``logs``/NAME.log."""
    with ExitStack() as stack:
        processes: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_stop, processes)
        for name, command in commands.items():
            log = stack.enter_context((logs / f"{name}.log").open("wb"))
            # A session of their own: Ctrl-C reaches this process alone, which then stops them.
            processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        yield processes


def _stop(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for process in processes.values():
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
