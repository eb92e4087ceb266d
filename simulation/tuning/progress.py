"""Show how a search goes: a bar of trials and one of rounds, or plain lines elsewhere."""

from typing import Self

from simulation.figures.metrics import Figures
from simulation.figures.progress import LiveBar


class SearchProgress(LiveBar):
    """Show a search on standard error."""

    def __init__(self, trial_count: int) -> None:
        """Start before the first trial."""
        super().__init__()
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
