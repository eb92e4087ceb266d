"""Stop a trial as soon as it cannot be worth it.

Epsilon is known before training, so a trial is hopeless once a better model at no larger epsilon is
known, or once its training diverged.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from simulation.figures.metrics import Figures, round_of
from simulation.figures.progress import RunStoppedError

PERPLEXITY = "valid_perplexity"


class HopelessError(RunStoppedError):
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

    def was_at(self, epsilon: float, rows: Iterable[Figures]) -> None:
        """Note the rounds of a run that went to its end."""
        for row in rows:
            perplexity = row.get(PERPLEXITY)
            if isinstance(perplexity, int | float):
                self._rounds.setdefault(round_of(row), []).append((epsilon, perplexity))

    def is_hopeless_at(self, round_number: int, epsilon: float, perplexity: float) -> bool:
        """Tell whether others were far better at this round for no larger epsilon."""
        return perplexity > self._slack * _least(self._rounds.get(round_number, ()), epsilon)

    def is_hopeless(self, epsilon: float, perplexity: float) -> bool:
        """Tell whether a whole trial was clearly better for no larger epsilon."""
        return perplexity > math.sqrt(self._slack) * _least(self._finals, epsilon)


class Watch(NamedTuple):
    """A listener to one trial's rounds, who ends it where the bar says so.

    It only reads the bar, so it can go with a run to another machine.
    """

    bar: Bar
    epsilon: float
    round_count: int

    def round_finished(self, figures: Figures) -> None:
        """Take the figures of one round.

        Raises:
            HopelessError: If the trial is not worth going on.
        """
        perplexity = figures.get(PERPLEXITY)
        if not isinstance(perplexity, int | float):
            return
        number = int(figures["round"] or 0)
        if not math.isfinite(perplexity):
            raise HopelessError(f"perplexity is {perplexity} at round {number}")
        # The first third says too little to judge by.
        is_judged = number > self.round_count // 3
        if is_judged and self.bar.is_hopeless_at(number, self.epsilon, perplexity):
            raise HopelessError(f"perplexity {perplexity:.1f} at round {number} is far behind")

    def finished(self, final: Figures) -> None:
        """Take the final figures of one seed.

        Raises:
            HopelessError: If the other seeds are not worth running, or training diverged.
        """
        perplexity = float(final[PERPLEXITY] or math.inf)
        if not math.isfinite(perplexity):
            raise HopelessError(f"perplexity is {perplexity} after one seed")
        if self.bar.is_hopeless(self.epsilon, perplexity):
            raise HopelessError(f"perplexity {perplexity:.1f} after one seed is beaten")


def _least(points: Sequence[tuple[float, float]], epsilon: float) -> float:
    return min((value for spent, value in points if spent <= epsilon), default=math.inf)
