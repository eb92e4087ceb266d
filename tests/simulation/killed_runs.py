"""A run that is stopped between two rounds, as by a kill."""

from simulation.figures.metrics import Figures


class RunKilledError(Exception):
    """Stand in for a kill between two rounds."""


class StopsAfter:
    """A reporter that stops the run after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def round_finished(self, figures: Figures) -> None:
        self._left -= 1
        if not self._left:
            raise RunKilledError
