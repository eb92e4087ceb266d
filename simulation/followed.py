"""Say what a run is followed by: which model is its best, and whether it still gets better."""

import math

from models.schema import RELEASED
from simulation.config import SimulationConfig
from simulation.metrics import Figures
from simulation.population import Population, PopulationError

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


def check_followed(config: SimulationConfig, population: Population) -> None:
    """Check that a run which follows its validation split has one to score models on.

    Args:
        config: The federation.
        population: Its clients, and what is held out.

    Raises:
        PopulationError: If the best model is to be kept, or the run to stop, by no figure at all.
    """
    evaluation, schema = config.evaluation, config.schema
    follows = evaluation.keep_best or config.convergence is not None
    if evaluation.kind != "public" or not follows:
        return
    is_whole = schema.with_roles(*RELEASED) == schema
    # What clients hold out is told of in no round under a guarantee.
    own = population.own_valid and not config.privacy.guarantees_privacy
    if own or (population.held_out.get("valid") and is_whole):
        return
    why = (
        "nothing is held out for it"
        if not population.held_out.get("valid")
        else f'method "{config.personalisation.method}" releases no whole model to score on it'
    )
    raise PopulationError(
        "evaluation.keep_best and convergence follow the figures of the validation split, and "
        f"{why}; set evaluation.keep_best = false and leave convergence out"
    )
