"""Say what a run is followed by: which model is its best, and whether it still gets better."""

import math

from simulation.metrics import Figures

_LOSSES = ("valid_mel_l1", "valid_spectral_distance")
"""Mean losses of voices and vocoders; a coordinator's perplexity is e to them too."""


def followed_perplexity(figures: Figures) -> float | None:
    """Return the perplexity on the validation split, or e to its loss where there are no words.

    Args:
        figures: Of a round.

    Returns:
        Infinity for a model that diverged; None where nothing was evaluated that could be followed.
    """
    perplexity = figures.get("valid_perplexity")
    if isinstance(perplexity, int | float):
        return perplexity
    for name in _LOSSES:
        loss = figures.get(name)
        if isinstance(loss, int | float):
            return math.exp(loss) if loss < math.log(1e300) else math.inf
    return None
