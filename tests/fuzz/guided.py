"""One target in a process of its own, fed by libFuzzer through atheris.

An error does not end the process, so that one defect does not hide the others: each place in the
code that an error came from is told once, with the first input that led there.
"""

import contextlib
import io
import os
import resource
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tests.fuzz.cost import LARGEST_INPUT_BYTES, cost_of
from tests.fuzz.hostile import inputs
from tests.fuzz.target import Prepared, Target

_PACKAGES = ["privacy", "models", "edge_client", "server", "export", "simulation"]
_LARGEST_SEED_BYTES = 64 << 10
_LEAST_LONGEST = 4096
_MOST_MEMORY_BYTES = 4 << 30
_HANGS_AFTER_S = 25
_RESULT, _LOG, _IN_HAND = "result.json", "log.txt", "in_hand"


class Problem(msgspec.Struct, frozen=True):
    """An input that broke its reader, or cost too much, and what came of it."""

    input: str
    told: str


class Result(msgspec.Struct):
    """A process's notes."""

    executions: int = 0
    slowest_s: float = 0.0
    peak_mb: float = 0.0
    broken: list[Problem] = []
    dear: list[Problem] = []


class Found(msgspec.Struct, frozen=True):
    """A target's line of the table, and what is wrong with its reader."""

    target: str
    executions: int
    crashes: int
    slowest_s: float
    peak_mb: float
    problems: list[str]


@contextlib.contextmanager
def instrumented() -> Iterator[None]:
    """Have atheris see which lines run of what is imported meanwhile."""
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit("atheris is missing; run: make fuzz, or install sotto[fuzz]")
    # It names each module that it instruments.
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=_PACKAGES):
        yield


def start(target: Target, folder: Path, seconds: float) -> int:
    """Begin fuzzing in a forked process; return its number."""
    folder.mkdir()
    for form in target.hostile:
        inputs(form)  # Made once, and not by each process.
    process = os.fork()
    if process:
        return process
    try:
        _redirect(folder / _LOG)
        _run(target, folder, seconds)
    except BaseException:
        traceback.print_exc()
    os._exit(3)


def taken(name: str, folder: Path, status: int, crashes: Path) -> Found:
    """Return what an ended process has seen; inputs that matter are copied to ``crashes``."""
    try:
        result = msgspec.json.decode((folder / _RESULT).read_bytes(), type=Result)
    except FileNotFoundError:
        result = Result(broken=[_died(folder, status)])
    problems = [_kept(name, one, crashes) for one in result.broken]
    for one in result.dear:
        kept = _kept(name, one, crashes)
        # Instrumented code is several times as slow: what it costs is measured without.
        plain = subprocess.run(kept.split("; ")[-1].split(), capture_output=True, check=False)
        if plain.returncode:
            problems.append(f"{plain.stdout.decode().strip()}; {kept}")
    return Found(
        target=name,
        executions=result.executions,
        crashes=len(result.broken),
        slowest_s=result.slowest_s,
        peak_mb=result.peak_mb,
        problems=problems,
    )


class _Attempts:
    """Every input of one process, and what came of it."""

    def __init__(self, target: Target, prepared: Prepared, folder: Path) -> None:
        self._target = target
        self._read = prepared.read
        self._folder = folder
        self._places: set[str] = set()
        self.result = Result()

    def until(self, end: float) -> Callable[[bytes], None]:
        """Return a reader that ends the process once the time, by the monotonic clock, is over."""

        def read(content: bytes) -> None:
            self(content)
            if time.monotonic() > end:
                (self._folder / _RESULT).write_bytes(msgspec.json.encode(self.result))
                os._exit(0)

        return read

    def __call__(self, content: bytes) -> None:
        """Read an input, and note what came of it."""
        cost = cost_of(self._read, content)
        result = self.result
        result.executions += 1
        if len(content) <= LARGEST_INPUT_BYTES:
            result.slowest_s = max(result.slowest_s, cost.seconds)
            result.peak_mb = max(result.peak_mb, cost.peak_mb)
            if cost.is_too_much and len(result.dear) < 3:
                told = f"{cost.seconds:.2f} s, {cost.peak_mb:.0f} MB"
                result.dear.append(Problem(self._saved(content, "dear"), told))
        if cost.error is None or isinstance(cost.error, self._target.refusals):
            return
        last = traceback.extract_tb(cost.error.__traceback__)[-1]
        place = f"{type(cost.error).__name__} at {last.filename}:{last.lineno}"
        if place not in self._places:
            self._places.add(place)
            told = f"{place}: {str(cost.error)[:200]}"
            result.broken.append(Problem(self._saved(content, "broken"), told))

    def _saved(self, content: bytes, kind: str) -> str:
        path = self._folder / f"{kind}-{self.result.executions}"
        path.write_bytes(content)
        return str(path)


def _run(target: Target, folder: Path, seconds: float) -> None:
    import atheris

    warnings.simplefilter("ignore")
    place, corpus = folder / "work", folder / "corpus"
    place.mkdir()
    corpus.mkdir()
    with instrumented():
        prepared = target.prepare(place)
        for seed in prepared.seeds:  # Loads what the reader loads at its first input.
            cost_of(prepared.read, seed)
    _bound_memory()
    attempts = _Attempts(target, prepared, folder)
    hostile = [content for form in target.hostile for content in inputs(form)]
    for number, content in enumerate([*prepared.seeds, *hostile]):
        if len(content) <= _LARGEST_SEED_BYTES:
            (corpus / str(number)).write_bytes(content)
        (folder / _IN_HAND).write_bytes(content)
        attempts(content)
    (folder / _IN_HAND).unlink()
    longest = max(_LEAST_LONGEST, *(2 * len(seed) for seed in prepared.seeds))
    flags = {
        "max_len": min(longest, LARGEST_INPUT_BYTES),
        "timeout": _HANGS_AFTER_S,
        "rss_limit_mb": 0,
        "artifact_prefix": f"{folder}/ended-",
    }
    arguments = ["fuzz", str(corpus), *(f"-{name}={value}" for name, value in flags.items())]
    atheris.Setup(arguments, attempts.until(time.monotonic() + seconds))
    atheris.Fuzz()


def _redirect(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _bound_memory() -> None:
    """Let a reader that asks for far too much fail instead of the machine."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (held + _MOST_MEMORY_BYTES, hard))


def _died(folder: Path, status: int) -> Problem:
    inputs_left = [*folder.glob("ended-*"), folder / _IN_HAND]
    last = (folder / _LOG).read_text(errors="replace").strip().splitlines()[-3:]
    told = f"its process ended with status {os.waitstatus_to_exitcode(status)}: {' | '.join(last)}"
    return Problem(next((str(path) for path in inputs_left if path.exists()), ""), told)


def _kept(name: str, problem: Problem, crashes: Path) -> str:
    """Copy an input to where it stays; return what came of it and the line that repeats it."""
    if not problem.input:
        return problem.told
    source = Path(problem.input)
    crashes.mkdir(exist_ok=True)
    kept = crashes / f"{name.replace('/', '-')}-{source.name}"
    kept.write_bytes(source.read_bytes())
    where = os.path.relpath(kept)
    return f"{problem.told}; {sys.executable} -m tests.fuzz --only {name} --input {where}"
