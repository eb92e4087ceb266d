"""Follow a running federation: a line of progress, and the figures of every round."""

import json
import subprocess
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.keyboard.setting_up import Place

SILENCE_LIMIT_S = 180.0
POLL_S = 0.2


class DemoError(Exception):
    """Raised when the demonstration cannot go on; the text says where to look."""


def await_coordinator(place: Place, process: subprocess.Popen[bytes]) -> None:
    """Wait until the coordinator listens.

    Raises:
        DemoError: If it ends or takes three minutes.
    """
    deadline = time.monotonic() + SILENCE_LIMIT_S
    while "devices on port" not in (place.folder / "coordinator.log").read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoError("the coordinator did not start; see demo/coordinator.log")
        time.sleep(POLL_S)


def follow(
    place: Place,
    rounds: int,
    processes: dict[str, subprocess.Popen[bytes]],
    console: Console,
) -> list[float]:
    """Show each round as the coordinator writes its figures; return the perplexities.

    Raises:
        DemoError: If a process ends or no round does for three minutes.
    """
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds, 5 devices, perplexity {task.fields[perplexity]}"),
        TimeElapsedColumn(),
    )
    perplexities: list[float] = []
    heard = time.monotonic()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=rounds, perplexity="...")
        while len(perplexities) < rounds:
            _check(processes, heard)
            time.sleep(POLL_S)
            now = _perplexities(place)
            if len(now) > len(perplexities):
                heard = time.monotonic()
                perplexities = now
                progress.update(task, completed=len(now), perplexity=f"{now[-1]:.1f}")
    return perplexities


def _check(processes: dict[str, subprocess.Popen[bytes]], heard: float) -> None:
    for name, process in processes.items():
        if process.poll() is not None:
            raise DemoError(f"{name} ended with status {process.returncode}; see demo/{name}.log")
    if time.monotonic() - heard > SILENCE_LIMIT_S:
        raise DemoError(f"no round for {SILENCE_LIMIT_S:.0f} s; see the logs in demo/")


def _perplexities(place: Place) -> list[float]:
    """Return the perplexity of every round so far; a half-written last line is left for later."""
    log = place.coordinator / "metrics.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line)["perplexity"] for line in lines]
