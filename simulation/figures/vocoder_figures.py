"""Sum up how well a vocoder makes sound (`models.tasks.vocoding`): by segments and by clients."""

from collections.abc import Mapping

from models.tasks.metrics import Counts
from simulation.figures.client_figures import over_counts
from simulation.figures.metrics import Value


def vocoder_figures(counts: Mapping[str, Counts]) -> dict[str, Value]:
    """Return the figures of all clients, each scored on its own clips.

    ``spectral_distance`` is that of `models.sound.spectral_distance`, all three parts added up;
    lower is better. Pooled, over clients, and for the worst tenth; empty without segments.
    """
    scored = [own for own in counts.values() if own.token_count]
    if not scored:
        return {}
    return over_counts(
        "spectral_distance", lambda own: own.mean_log_loss, scored, least_is_worst=False
    )


def vocoder_split_figures(split: str, counts: Counts) -> dict[str, Value]:
    """Return the figure of split ``valid`` or ``test`` over all its segments, at least one."""
    return {f"{split}_spectral_distance": counts.mean_log_loss}
