"""Run each reader on inputs that atheris makes, and print what it took: ``make fuzz``.

Each target has a process of its own, for ``--seconds``; as many run at a time as there are cores.
An input that ends in an undeclared error, or takes too long or too much memory, is kept under
``runs/fuzz`` and ends the target.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

KEPT = Path("runs/fuzz")
# What a process has with its libraries and the fuzzer's own inputs, beside the reader's 200 MB.
_LIMIT_MIB = 2048
_LONGEST_S = 10
_FIGURES = {
    "executions": r"stat::number_of_executed_units:\s*(\d+)",
    "slowest": r"slowest input: ([\d.]+)",
    "memory": r"memory of an input: (\d+)",
    "crashes": r"== (ERROR|.*Uncaught)",
}


def main() -> int:
    """Fuzz the targets that are named, or all; return 1 if one crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("targets", nargs="*", help="targets; all if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="seconds a target (60)")
    asked = parser.parse_args()
    from tests.fuzz.registry import TARGETS

    names = asked.targets or list(TARGETS)
    table = Table("target", "executions", "crashes", "slowest s", "memory MiB")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = []
        for row in pool.map(partial(_run, seconds=asked.seconds), names):
            rows.append(row)
            table.add_row(*row)
            print(*row, file=sys.stderr)  # noqa: T201  # An hour without a word is long.
    Console(width=100).print(table)
    return int(any(row[2] != "0" for row in rows))


def _run(name: str, seconds: int) -> list[str]:
    KEPT.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.one_target", name]
    limits = [
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={_LIMIT_MIB}",
        f"-timeout={_LONGEST_S}",
        f"-artifact_prefix={KEPT}/{name}-",
        "-print_final_stats=1",
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(
            [*command, *limits], capture_output=True, check=False, env=environment
        )
    told = done.stderr.decode(errors="replace")
    if done.returncode:
        (KEPT / f"{name}.log").write_text(told)
    found = {key: re.findall(pattern, told) for key, pattern in _FIGURES.items()}
    last = {key: str(values[-1]) if values else "-" for key, values in found.items()}
    return [
        name,
        last["executions"],
        str(int(done.returncode != 0)),
        last["slowest"],
        last["memory"],
    ]


if __name__ == "__main__":
    sys.exit(main())
