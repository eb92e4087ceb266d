"""Say how runs, audits and searches go, on standard error: live bars on a terminal, else lines."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from simulation.figures.metrics import Figures

_CANARY_LINES = 8
# What a line shows, in this order, of all that is written to the metrics.
_SHOWN = {
    "layer_count": "layers {}",
    "train_loss": "train loss {:.3f}",
    "valid_perplexity": "valid perplexity {:.1f}",
    "valid_top3_recall": "top-3 {:.1%}",
    "mel_l1": "mel L1 {:.3f}",
    "spectral_distance": "spectral distance {:.3f}",
    "round_s": "{:.1f} s",
}


def tell(notes: Iterable[str]) -> None:
    """Show notes, one a line, on standard error."""
    console = Console(file=sys.stderr, highlight=False, markup=False)
    for note in notes:
        console.print(note)


class Reporter(Protocol):
    """A listener to every finished round."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures of one round."""
        ...


class Quiet:
    """A listener that says nothing."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures and drop them."""


class LiveBar:
    """A bar on standard error, the only live one while the block lasts; hidden off a terminal."""

    def __init__(self, *columns: ProgressColumn, waits: bool = False) -> None:
        """Show these columns after the usual ones; a ``waits`` bar begins with the first news."""
        self._waits = waits
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            *columns,
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        if not self._waits:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()


class ProgressReport(LiveBar):
    """Rounds as they finish."""

    def __init__(self, name: str, *, last_round: int, first_round: int | None = None) -> None:
        """Start before ``first_round``; without one, wait for the first round that ends."""
        self._name = name
        self._last_round = last_round
        super().__init__(TextColumn("{task.fields[line]}"), waits=first_round is None)
        self._task = self._bar.add_task(
            name, total=last_round, completed=(first_round or 1) - 1, line="starting"
        )

    def round_finished(self, figures: Figures) -> None:
        """Show one round."""
        line = ", ".join(
            text.format(value)
            for name, text in _SHOWN.items()
            if isinstance(value := figures.get(name), int | float)
        )
        number = int(figures["round"] or 0)
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=number, line=line)
        else:
            self._console.print(f"{self._name}: round {number}/{self._last_round}: {line}")


class CanaryProgress(LiveBar):
    """Rounds of canaries, from the first one on."""

    def __init__(self) -> None:
        super().__init__(waits=True)
        self._task = self._bar.add_task("canaries")
        self._told = 0

    def __call__(self, done: int, total: int) -> None:
        """Show how many rounds are done, of how many."""
        if self._console.is_terminal:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total)
            if done == total:
                self._bar.stop()
        elif done * _CANARY_LINES // total > self._told:
            self._told = done * _CANARY_LINES // total
            self._console.print(f"canaries: round {done}/{total}")


class SearchProgress(LiveBar):
    """A bar of trials and one of the rounds of a run."""

    def __init__(self, trial_count: int) -> None:
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
        """Show what a trial came to."""
        self._bar.update(self._trials, completed=done)
        self._console.print(f"trial {done}: {line}")
