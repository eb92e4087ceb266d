"""Say how an audit goes, on standard error: a live bar on a terminal, plain lines elsewhere."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from simulation.figures.metrics import Figures
from simulation.figures.progress import LiveBar, ProgressReport

_LINES = 8


class CanaryProgress(LiveBar):
    """Show rounds of canaries."""

    def __init__(self) -> None:
        """Wait for the first rounds."""
        super().__init__()
        self._task = self._bar.add_task("canaries")
        self._told = 0

    def __call__(self, done: int, total: int) -> None:
        """Take how many rounds are done, of how many."""
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total)
            if done == total:
                self._bar.stop()
        elif done * _LINES // total > self._told:
            self._told = done * _LINES // total
            self._console.print(f"canaries: round {done}/{total}")

    def __enter__(self) -> Self:
        """Wait: the bar begins with the first round."""
        return self


class LateReport:
    """Show rounds of training, from the first one that ends: only one bar lives at a time."""

    def __init__(self, name: str, last_round: int) -> None:
        """Show a run of that name and length."""
        self._name = name
        self._last_round = last_round
        self._shown = ExitStack()
        self._report: ProgressReport | None = None

    def round_finished(self, figures: Figures) -> None:
        """Show one round."""
        if self._report is None:
            first = int(figures["round"] or 1)
            report = ProgressReport(self._name, first_round=first, last_round=self._last_round)
            self._report = self._shown.enter_context(report)
        self._report.round_finished(figures)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.close()
