"""Say how a run goes: a live bar on a terminal, plain lines elsewhere."""

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
    """Hear of every finished round."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures of one round."""
        ...


class Quiet:
    """Say nothing."""

    def round_finished(self, figures: Figures) -> None:
        """Take the figures and drop them."""


class LiveBar:
    """Hold a bar on standard error, live while the block lasts, and only on a terminal."""

    def __init__(self, *columns: ProgressColumn) -> None:
        """Show description, bar, count and time left, and these columns after them."""
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
    """Show rounds as they finish, on standard error."""

    def __init__(self, name: str, *, first_round: int, last_round: int) -> None:
        """Start at the round before ``first_round``."""
        self._name = name
        self._last_round = last_round
        super().__init__(TextColumn("{task.fields[line]}"))
        self._task = self._bar.add_task(
            name, total=last_round, completed=first_round - 1, line="starting"
        )

    def round_finished(self, figures: Figures) -> None:
        """Show one round."""
        line = ", ".join(
            text.format(value)
            for name, text in _SHOWN.items()
            if isinstance(value := figures.get(name), int | float)
        )
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, line=line)
        else:
            number = figures["round"]
            self._console.print(f"{self._name}: round {number}/{self._last_round}: {line}")
