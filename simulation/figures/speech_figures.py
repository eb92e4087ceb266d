"""Sum up how well voices speak unheard clips (`models.tasks.speech`): by frames and by clients."""

from collections.abc import Mapping

from models.tasks.metrics import Counts
from simulation.figures.client_figures import over_counts
from simulation.figures.metrics import Value


def speech_figures(counts: Mapping[str, Counts]) -> dict[str, Value]:
    """Return the figures of all clients, each scored on its own clips in its own voice.

    ``mel_l1`` is the mean absolute difference of log-mels in natural logarithms of amplitude, lower
    is better; ``stop_accuracy`` the share of frames in steps that rightly end the clip or go on,
    and ``exact_stop`` that of clips that would end at their last step and not before. Every step is
    fed the right frames before it. Pooled, over clients, and for the worst tenth; empty without
    clips.
    """
    scored = [own for own in counts.values() if own.token_count]
    if not scored:
        return {}
    return {
        **over_counts("mel_l1", lambda own: own.mean_log_loss, scored, least_is_worst=False),
        **over_counts("stop_accuracy", lambda own: own.accuracy, scored, least_is_worst=True),
        **over_counts("exact_stop", lambda own: own.exact_match, scored, least_is_worst=True),
    }


def split_figures(split: str, counts: Counts) -> dict[str, Value]:
    """Return the figures of split ``valid`` or ``test`` over all its frames, at least one."""
    return {
        f"{split}_mel_l1": counts.mean_log_loss,
        f"{split}_stop_accuracy": counts.accuracy,
        f"{split}_exact_stop": counts.exact_match,
    }
