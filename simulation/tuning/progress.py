"""Show how a search goes: a bar of trials and one of rounds, or plain lines elsewhere."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulation.metrics import Figures


class SearchProgress:
    """Show a search on standard error."""

    def __init__(self, trial_count: int) -> None:
        """Start before the first trial."""
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._trials = self._bar.add_task("trials", total=trial_count)
        self._rounds = self._bar.add_task("rounds", total=None)

    def run_started(self, name: str, round_count: int) -> Self:
        """Show a run of a trial from its start, and hear of its rounds from now on."""
        self._bar.reset(self._rounds, total=round_count, description=name)
        return self

    def round_finished(self, figures: Figures) -> None:
        """Show one round of the run."""
        self._bar.update(self._rounds, completed=int(figures["round"] or 0))

    def trial_finished(self, done: int, line: str) -> None:
        """Show what a trial came to.

        Args:
            done: Trials finished so far.
            line: What to say of this one.
        """
        self._bar.update(self._trials, completed=done)
        self._console.print(f"trial {done}: {line}")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
