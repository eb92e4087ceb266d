"""Run a command of the product on a machine whose clock is wrong or whose disk can be filled.

    python -m benchmarks.storms.changed_machine MARK CLOCK_S MODULE [ARGUMENT ...]

While the file MARK exists, whatever Python opens for writing or writes to a file fails as on a full
disk; SQLite, which is not Python, still has room. CLOCK_S is added to the time of the day.
"""

import builtins
import errno
import io
import os
import runpy
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import ParamSpec, TypeVar

from grpc.aio import _utils as grpc_utils

_P = ParamSpec("_P")
_R = TypeVar("_R")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def fill_disk_while(mark: Path) -> None:
    """Let nothing be written to a file while ``mark`` exists."""

    def failing(
        call: Callable[_P, _R], concerns: Callable[_P, bool], *, looks: Callable[[Path], bool]
    ) -> Callable[_P, _R]:
        def checked(*arguments: _P.args, **named: _P.kwargs) -> _R:
            if looks(mark) and concerns(*arguments, **named):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **named)

        return checked

    def makes(path: object, flags: int = 0, *_: object, **__: object) -> bool:
        return bool(flags & _WRITING)

    def makes_file(file: object, mode: str = "r", *_: object, **__: object) -> bool:
        return not isinstance(file, int) and bool(set("wax+") & set(mode))

    def is_file(descriptor: int, *_: object) -> bool:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)

    there = os.path.exists
    for owner, name, concerns in (
        (os, "open", makes),
        (os, "write", is_file),
        (os, "pwrite", is_file),
        (io, "open", makes_file),
        (builtins, "open", makes_file),
    ):
        setattr(owner, name, failing(getattr(owner, name), concerns, looks=there))


def set_clock(ahead_s: float) -> None:
    """Let the time of the day be wrong by so many seconds, for all that Python asks it."""
    right = time.time
    # gRPC's deadlines are in the time of the day, which its core asks the kernel and not Python.
    setattr(grpc_utils, "time", SimpleNamespace(time=right))  # noqa: B010
    time.time = lambda: right() + ahead_s


def main() -> None:
    """Change the machine and run the command."""
    mark, ahead_s, module = sys.argv[1:4]
    fill_disk_while(Path(mark))
    if float(ahead_s):
        set_clock(float(ahead_s))
    sys.argv = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
