"""The rounds that a run needs until it is good enough."""

from typing import NamedTuple

from models.tasks.figures import quality_of
from simulation.figures.metrics import Figures


class Threshold(NamedTuple):
    """A figure of the metrics and the value to reach, from below if more of it is better."""

    figure: str
    value: float

    @property
    def name(self) -> str:
        """Return the name of the resulting figure."""
        return f"rounds_to_{self.figure}_{self.value:g}"

    def is_reached(self, figures: Figures) -> bool:
        """Return whether a round's figures hold the figure, and it has come to the value."""
        value = figures.get(self.figure)
        if not isinstance(value, int | float):
            return False
        quality = quality_of(self.figure)
        rises = quality is not None and quality.more_is_better
        return value >= self.value if rises else value <= self.value


def parse_threshold(text: str) -> Threshold:
    """Read ``figure=value``.

    Raises:
        ValueError: If the text reads otherwise.
    """
    figure, _, value = text.partition("=")
    try:
        return Threshold(figure.strip(), float(value))
    except ValueError:
        raise ValueError(f"a threshold must read like valid_perplexity=200, got {text}") from None
