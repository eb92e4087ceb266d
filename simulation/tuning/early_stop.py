"""Stop a trial as soon as it cannot be worth it.

Epsilon is known before training, so a trial is hopeless once a better model at no larger epsilon is
known, or once its training diverged.
"""

import math
from collections.abc import Sequence
from typing import Self

from simulation.figures.metrics import Figures
from simulation.figures.progress import Reporter

PERPLEXITY = "valid_perplexity"


class HopelessError(Exception):
    """Raised when a better model at no larger epsilon is known, or training diverged."""


class Bar:
    """The best perplexity so far at each epsilon, by round and at the end."""

    def __init__(self, *, slack: float = 1.25) -> None:
        """Start empty; ``slack`` is the factor by which a run on its way may be worse."""
        self._slack = slack
        self._finals: list[tuple[float, float]] = []
        self._rounds: dict[int, list[tuple[float, float]]] = {}

    def passed(self, epsilon: float, perplexity: float) -> None:
        """Note a finished trial."""
        self._finals.append((epsilon, perplexity))

    def was_at(self, round_number: int, epsilon: float, perplexity: float) -> None:
        """Note a run on its way."""
        self._rounds.setdefault(round_number, []).append((epsilon, perplexity))

    def is_hopeless_at(self, round_number: int, epsilon: float, perplexity: float) -> bool:
        """Tell whether others were far better at this round for no larger epsilon."""
        return perplexity > self._slack * _least(self._rounds.get(round_number, ()), epsilon)

    def is_hopeless(self, epsilon: float, perplexity: float) -> bool:
        """Tell whether a whole trial was clearly better for no larger epsilon."""
        return perplexity > math.sqrt(self._slack) * _least(self._finals, epsilon)


class Watch:
    """A listener to one trial's rounds, who ends it where the bar says so."""

    def __init__(self, bar: Bar, epsilon: float, *, round_count: int) -> None:
        """Watch a trial of this epsilon; its first third says too little to judge by."""
        self._bar = bar
        self._epsilon = epsilon
        self._first_judged = 1 + round_count // 3
        self._shown: Reporter | None = None
        self._seen: list[tuple[int, float]] = []

    def beside(self, reporter: Reporter) -> Self:
        """Hear of a run's rounds, and let another hear of them too."""
        self._shown = reporter
        return self

    def round_finished(self, figures: Figures) -> None:
        """Take the figures of one round.

        Raises:
            HopelessError: If the trial is not worth going on.
        """
        if self._shown is not None:
            self._shown.round_finished(figures)
        perplexity = figures.get(PERPLEXITY)
        if not isinstance(perplexity, int | float):
            return
        number = int(figures["round"] or 0)
        if not math.isfinite(perplexity):
            raise HopelessError(f"perplexity is {perplexity} at round {number}")
        if number >= self._first_judged and self._bar.is_hopeless_at(
            number, self._epsilon, perplexity
        ):
            raise HopelessError(f"perplexity {perplexity:.1f} at round {number} is far behind")
        self._seen.append((number, perplexity))

    def finished(self, final: Figures) -> None:
        """Take the final figures of one seed.

        Raises:
            HopelessError: If the other seeds are not worth running, or training diverged.
        """
        perplexity = float(final[PERPLEXITY] or math.inf)
        if not math.isfinite(perplexity):
            raise HopelessError(f"perplexity is {perplexity} after one seed")
        if self._bar.is_hopeless(self._epsilon, perplexity):
            raise HopelessError(f"perplexity {perplexity:.1f} after one seed is beaten")

    def passed(self) -> None:
        """Raise the bar by what this trial came to on its way."""
        # Only now: a trial is not held against its own other seeds.
        for number, perplexity in self._seen:
            self._bar.was_at(number, self._epsilon, perplexity)


def _least(points: Sequence[tuple[float, float]], epsilon: float) -> float:
    return min((value for spent, value in points if spent <= epsilon), default=math.inf)
