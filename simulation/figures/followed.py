"""The figure that a run is followed by: it selects the best model, and ends the run."""

import math

from models.vector.schema import RELEASED
from simulation.config.simulation import SimulationConfig
from simulation.figures.metrics import Figures
from simulation.population.population import Population, PopulationError

_LOSSES = ("valid_mel_l1", "valid_spectral_distance")
"""Mean losses of voices and vocoders; a coordinator's perplexity is e to them too."""


def followed_perplexity(figures: Figures) -> float | None:
    """Return the perplexity on the validation split, or e to its loss where there are no words.

    It is infinite for a model that diverged, and None if nothing evaluated could be followed.
    """
    perplexity = figures.get("valid_perplexity")
    if isinstance(perplexity, int | float):
        return perplexity
    for name in _LOSSES:
        loss = figures.get(name)
        if isinstance(loss, int | float):
            return math.exp(loss) if loss < math.log(1e300) else math.inf
    return None


def check_followed(config: SimulationConfig, population: Population) -> None:
    """Check that a run which is to stop by its validation split has one to score models on.

    Raises:
        PopulationError: If the run is to stop by no figure at all.
    """
    why = nothing_to_follow(config, population)
    if why and config.convergence is not None:
        raise PopulationError(
            f"convergence follows the figures of the validation split, and {why}; leave it out"
        )


def nothing_to_follow(config: SimulationConfig, population: Population) -> str | None:
    """Return why the validation split cannot tell the rounds' models apart; None if it can."""
    # What clients hold out is told of in no round under a guarantee.
    own = population.own_valid and not config.privacy.guarantees_privacy
    if config.evaluation.kind != "public" or own:
        return None
    if not population.held_out.get("valid"):
        return "nothing is held out for it"
    if config.schema.with_roles(*RELEASED) != config.schema:
        return f'method "{config.personalisation.method}" releases no whole model to score on it'
    return None
