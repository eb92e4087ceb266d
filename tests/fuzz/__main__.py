"""Run coverage-guided fuzzing of every reader of bytes from outside; see ``--help``."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.fuzz.cost import cost_of
from tests.fuzz.guided import Found, instrumented, start, taken
from tests.fuzz.table import heading, printed

CRASHES = Path(__file__).parent / "crashes"
"""The folder of inputs that broke a reader; git ignores it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 1 if an input broke its reader or cost too much, else 0."""
    options = _options(argv)
    # Threads of libraries would only get into each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.input is not None:
        return _reproduce(options.only, options.input)
    with instrumented():
        from tests.fuzz.registry import targets
    chosen = [one for one in targets() if options.only is None or options.only in one.name]
    if not chosen:
        sys.stderr.write(f"no target has {options.only!r} in its name\n")
        return 2
    if not options.json:
        sys.stdout.write(heading() + "\n")
    found: list[Found] = []
    running: dict[int, tuple[str, Path]] = {}
    with tempfile.TemporaryDirectory(prefix="sotto-fuzz-") as folder:
        waiting = list(enumerate(chosen))
        while waiting or running:
            while waiting and len(running) < options.jobs:
                number, target = waiting.pop(0)
                place = Path(folder) / str(number)
                running[start(target, place, options.seconds)] = (target.name, place)
            process, status = os.wait()
            name, place = running.pop(process)
            found.append(taken(name, place, status, CRASHES))
            if not options.json:
                sys.stdout.write(printed(found[-1]) + "\n")
                sys.stdout.flush()
    if options.json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return int(any(one.problems for one in found))


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target (default 60)")
    parser.add_argument("--only", help="targets that have this in their name")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time (default 2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--input", type=Path, help="read this one file with the target of --only")
    options = parser.parse_args(argv)
    if options.input is not None and options.only is None:
        parser.error("--input needs --only with the target's whole name")
    return options


def _reproduce(name: str, path: Path) -> int:
    """Read one input as it is read outside of fuzzing, and tell what came of it."""
    from tests.fuzz.registry import target

    with tempfile.TemporaryDirectory(prefix="sotto-fuzz-") as folder:
        known = target(name)
        prepared = known.prepare(Path(folder))
        for seed in prepared.seeds:  # What is loaded with the first input is no cost of this one.
            cost_of(prepared.read, seed)
        cost = cost_of(prepared.read, path.read_bytes())
    sys.stdout.write(f"{name}: {cost.seconds:.3f} s, {cost.peak_mb:.0f} MB, {cost.error!r}\n")
    if cost.error is not None and not isinstance(cost.error, known.refusals):
        raise cost.error
    return int(cost.is_too_much)


if __name__ == "__main__":
    sys.exit(main())
