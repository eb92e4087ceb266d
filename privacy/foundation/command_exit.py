"""The end of a command: one line for a failure, silence where nobody reads on.

``sotto-server rounds FOLDER --json | head`` closes the pipe when it has seen enough. Other programs
are ended by a signal then; Python turns it into an error of whatever was being written.
"""

import functools
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

CLOSED_PIPE = 141
"""A shell's status for a program that SIGPIPE has ended: 128 and the signal's number."""


class Main(Protocol):
    """A command's ``main``: run the given line, or the shell's; return the exit status."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Run it."""


def command(program: str) -> Callable[[Main], Main]:
    """Return a decorator for ``main`` that writes out what was printed before it returns.

    Otherwise Python does so when it ends, and reports at length that it could not.
    """

    def decorate(main: Main) -> Main:
        @functools.wraps(main)
        def run(argv: Sequence[str] | None = None) -> int:
            try:
                status = main(argv)
            except SystemExit:
                # Help was printed, or the usage was wrong.
                if refused := _flush(program):
                    return refused
                raise
            return _flush(program) or status

        return run

    return decorate


def failed(program: str, error: Exception) -> int:
    """Say in one line on stderr why a command failed; return its exit status.

    Where the reader of its output has closed it, nothing is said.
    """
    if isinstance(error, BrokenPipeError) and _nobody_reads():
        # The rest of the output would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    print(f"{program}: {_line(error)}", file=sys.stderr)  # noqa: T201 (each command's cli.py calls this)
    return 1


def _line(error: Exception) -> str:
    """Return the error's text; of a file that cannot be used, its name and why."""
    if isinstance(error, OSError) and isinstance(error.filename, str) and not error.filename2:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _flush(program: str) -> int:
    """Write out what was printed; return 0, or the exit status if that failed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return failed(program, error)
    return 0


def _nobody_reads() -> bool:
    """Return whether standard output is a pipe that nobody reads: another may have broken."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        return False
    poll = select.poll()
    poll.register(output, 0)  # an error is told without being asked for
    return any(event & select.POLLERR for _, event in poll.poll(0))
