"""One target under atheris: `tests.fuzz.run` starts it with libFuzzer's options behind its name."""

import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=[
        "privacy",
        "models",
        "edge_client",
        "export",
        "server",
        "simulation",
        "tomllib",
        "json",
    ]
):
    from tests.fuzz.registry import TARGETS

from tests.fuzz.hostile import hostile
from tests.fuzz.target import Prepared, Target

LONGEST_S = 1.0
MOST_MIB = 200
_LONGEST_INPUT = 1 << 20


class BoundError(Exception):
    """Raised when an input took more than its reader may."""


class Measured:
    """A target's reader, with what the slowest and the largest input took."""

    def __init__(self, target: Target, prepared: Prepared) -> None:
        self._target = target
        self._read = prepared.read
        self._slowest = 0.01
        self._largest = 0

    def __call__(self, content: bytes) -> None:
        """Read an input; BoundError if it took too much, or an error that was not declared."""
        start, before = time.process_time(), _peak_mib()
        with contextlib.suppress(*self._target.refusals):
            self._read(content)
        took, grown = time.process_time() - start, _peak_mib() - before
        if took > self._slowest:
            self._slowest = took
            sys.stderr.write(f"slowest input: {took:.2f}\n")
        if grown > self._largest:
            self._largest = grown
            sys.stderr.write(f"memory of an input: {grown}\n")
        if took > LONGEST_S or grown > MOST_MIB:
            raise BoundError(f"{len(content)} bytes took {took:.2f} s and {grown} MiB")


def main() -> None:
    """Fuzz one target with its valid and its hostile inputs to start from."""
    target, folder = TARGETS[sys.argv[1]], Path(tempfile.mkdtemp())
    (folder / "corpus").mkdir()
    (folder / "place").mkdir()
    prepared = target.prepare(folder / "place")
    inputs = [*prepared.seeds, *(one for name in target.hostile for one in hostile(name))]
    for number, content in enumerate(inputs):
        (folder / "corpus" / f"{number:02d}").write_bytes(content[:_LONGEST_INPUT])
    options = [sys.argv[0], *sys.argv[2:], f"-max_len={_LONGEST_INPUT}", str(folder / "corpus")]
    atheris.Setup(options, Measured(target, prepared))
    atheris.Fuzz()


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
