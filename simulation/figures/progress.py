"""Say how runs, audits and searches go: live bars on a terminal or in a notebook, else lines."""

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
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


class RunStoppedError(Exception):
    """Raised by a listener to end a run that is not worth going on."""


class Reporter(Protocol):
    """A listener to every finished round."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures of one round; RunStoppedError ends the run."""
        ...


class Quiet:
    """A listener that says nothing."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures and drop them."""


class Both(NamedTuple):
    """Two listeners, the first of which hears first."""

    first: Reporter
    second: Reporter

    def round_finished(self, figures: Figures) -> None:
        """Tell both."""
        self.first.round_finished(figures)
        self.second.round_finished(figures)


class Show(Protocol):
    """A display of a run's rounds, as long as the block lasts."""

    def __call__(
        self, name: str, *, first_round: int, last_round: int
    ) -> AbstractContextManager[Reporter]:
        """Show a run under way from its first round on."""
        ...


def _is_live(console: Console) -> bool:
    """Return whether a bar may be drawn over: on a terminal, or in a notebook that has widgets."""
    has_widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or has_widgets


class LiveBar:
    """A bar on standard error, the only live one while the block lasts.

    Attributes:
        is_live: False off a terminal and a notebook's widgets: it is hidden there.
    """

    def __init__(self, *columns: ProgressColumn, waits: bool = False) -> None:
        """Show these columns after the usual ones; a ``waits`` bar begins with the first news."""
        self._waits = waits
        self._console = Console(file=sys.stderr, highlight=False)
        self.is_live = _is_live(self._console)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            *columns,
            console=self._console,
            disable=not self.is_live,
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
        number, line = int(figures["round"] or 0), _shown(figures)
        if self.is_live:
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
        if self.is_live:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total)
            if done == total:
                self._bar.stop()
        elif done * _CANARY_LINES // total > self._told:
            self._told = done * _CANARY_LINES // total
            self._console.print(f"canaries: round {done}/{total}")


class ManyProgress(LiveBar):
    """A bar of all runs or trials, and one of the rounds of each run under way."""

    def __init__(self, of: str, *, count: int | None = None, tells_runs: bool = False) -> None:
        """Show none done of ``count``; ``tells_runs`` prints lines of runs off a terminal."""
        super().__init__(TextColumn("{task.fields[line]}"))
        self._tells_runs = tells_runs
        self._under_way = 0
        self._all = self._bar.add_task(of, total=count, line="")

    @contextmanager
    def running(self, name: str, *, first_round: int, last_round: int) -> Iterator[Reporter]:
        """Show a run under way."""
        row = self._bar.add_task(name, total=last_round, completed=first_round - 1, line="")
        self._count_under_way(1)
        try:
            yield _Row(self, name, row, last_round)
        finally:
            self._bar.remove_task(row)
            self._count_under_way(-1)

    def runs_counted(self, done: int, count: int, ended: str | None) -> None:
        """Show how many runs are done of how many, and the name of one that just ended."""
        self._bar.update(self._all, completed=done, total=count)
        if ended is not None and self._tells_runs:
            self._console.print(f"{ended}: {done} of {count} done, {self._under_way} under way")

    def trial_finished(self, done: int, line: str) -> None:
        """Show how many trials are done, and what the last one came to."""
        self._bar.update(self._all, completed=done)
        self._console.print(f"trial {done}: {line}")

    def round_finished(self, row: "_Row", figures: Figures) -> None:
        """Show one round of a run under way."""
        number, line = int(figures["round"] or 0), _shown(figures)
        self._bar.update(row.task, completed=number, line=line)
        if self._tells_runs and not self.is_live:
            self._console.print(f"{row.name}: round {number}/{row.last_round}: {line}")

    def _count_under_way(self, more: int) -> None:
        self._under_way += more
        self._bar.update(self._all, line=f"{self._under_way} under way")


class _Row(NamedTuple):
    """A run's row."""

    progress: ManyProgress
    name: str
    task: TaskID
    last_round: int

    def round_finished(self, figures: Figures) -> None:
        self.progress.round_finished(self, figures)


def _shown(figures: Figures) -> str:
    """Return what a line shows of a round."""
    return ", ".join(
        text.format(value)
        for name, text in _SHOWN.items()
        if isinstance(value := figures.get(name), int | float)
    )
