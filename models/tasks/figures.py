"""Tell for each figure that judges a model whether more or less of it is better."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Quality:
    """How a figure tells a good model from a bad one.

    Attributes:
        more_is_better: Whether a larger figure is a better one.
        is_share: Whether it is a share of something, whose changes are given in points.
    """

    more_is_better: bool
    is_share: bool


_SHARE = Quality(more_is_better=True, is_share=True)
_ERROR_SHARE = Quality(more_is_better=False, is_share=True)
_SCORE = Quality(more_is_better=True, is_share=False)
_DISTANCE = Quality(more_is_better=False, is_share=False)

_QUALITIES: Mapping[str, Quality] = {
    "accuracy": _SHARE,
    "top1_recall": _SHARE,
    "top3_recall": _SHARE,
    "listed_top1_recall": _SHARE,
    "listed_top3_recall": _SHARE,
    "exact_match": _SHARE,
    "keystroke_savings": _SHARE,
    "stop_accuracy": _SHARE,
    "exact_stop": _SHARE,
    "diagonality": _SHARE,
    "stoi": _SHARE,
    "pesq": _SCORE,
    "character_error_rate": _ERROR_SHARE,
    "voicing_error": _ERROR_SHARE,
    "perplexity": _DISTANCE,
    "train_loss": _DISTANCE,
    "mel_l1": _DISTANCE,
    "spectral_distance": _DISTANCE,
    "mcd_db": _DISTANCE,
    "f0_rmse_hz": _DISTANCE,
    "f0_rmse_cents": _DISTANCE,
}
_NAME = re.compile(r"(?:valid_|test_)?(\w+?)(?:_clients_mean|_clients_worst_decile)?")


def quality_of(name: str) -> Quality | None:
    """Return how a figure tells good from bad; None for others, such as a round's number or bytes.

    Names may carry the split before them and the clients counted behind them: ``perplexity``,
    ``valid_perplexity``, ``perplexity_clients_mean``.
    """
    found = _NAME.fullmatch(name)
    return None if found is None else _QUALITIES.get(found[1])
