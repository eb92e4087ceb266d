"""Judge a version by one figure beside the present version's: only what is good enough is served.

`models.tasks.figures` knows whether more or less of a figure is better; a figure that does not say
how good a model is passes no gate.
"""

import math
from collections.abc import Mapping

from export.serve.folder.folder import ServingError
from models.plan.release_record import Metric
from models.tasks.figures import Quality, quality_of
from models.tasks.metrics import BESIDE_RECALL

_PER_CENT = 100


class GateError(ServingError):
    """Raised when a version is not good enough to be served."""


def believed_figure(
    metric: str, metrics: Mapping[str, Metric], *, round_number: int, otherwise: str = ""
) -> float:
    """Return a figure as a bundle has it; infinity for one that was too large for JSON.

    Args:
        round_number: Which bundle's, for the error.
        otherwise: The other remedies, for the error.

    Raises:
        GateError: If the bundle lacks it, or it does not say how good a model is; names those that
            do.
    """
    figure = metrics.get(metric)
    is_there = isinstance(figure, int | float) or (figure is None and metric in metrics)
    if quality_of(metric) is None or not is_there:
        usable = [name for name in sorted(metrics) if quality_of(name) is not None]
        raise GateError(
            f"metric {metric!r} must be a figure of round {round_number}'s bundle that says how "
            f"good the model is; it has {', '.join(usable) or 'none'}"
            + ("; give one of these with --metric" if usable else "")
            + otherwise
        )
    return float(figure) if isinstance(figure, int | float) else math.inf


def check_counted_alike(metric: str, *bundles: Mapping[str, Metric]) -> None:
    """Check that the recall of all bundles is over the same targets.

    Raises:
        GateError: If one's is over typed words alone, and another's was counted before that.
    """
    if "recall" not in metric and "accuracy" not in metric:
        return
    over_words = {any(name.endswith(BESIDE_RECALL) for name in one) for one in bundles}
    if len(over_words) > 1:
        raise GateError(
            f"{metric!r} of one version is over typed words, and of the other was counted before "
            "words alone, with ends of sentences: they cannot be compared; measure both with "
            "--held-out, or compare perplexity with --metric"
        )


def judge(
    metric: str,
    old: float | None,
    new: float,
    *,
    largest_loss: float,
    what: str = "version",
    why_alone: str = "no version was served before",
) -> str:
    """Return in words why a figure is good enough beside the present version's.

    Args:
        old: The present version's; None if there is nothing to compare with.
        largest_loss: How much worse it may be: of a share in percentage points, of any other
            figure in per cent of the present one.
        why_alone: Why there is nothing to compare with, in words.

    Raises:
        GateError: If it is worse than that, or not finite.
    """
    quality = quality_of(metric)
    if quality is None:
        raise GateError(f"metric {metric!r} must be one that says how good a model is")
    if not math.isfinite(new):
        raise GateError(f"{metric} of the new {what} must be finite, got {new}")
    if old is None:
        return f"{metric} {new:.4f}; {why_alone}"
    found = f"{metric} {new:.4f}, the present {what} has {old:.4f}"
    if math.isfinite(old) and not _is_good_enough(quality, old, new, largest_loss):
        better = "more" if quality.more_is_better else "less"
        unit = "points" if quality.is_share else "%"
        raise GateError(
            f"{found}: {better} is better, and it may be at most {largest_loss:g} {unit} worse; "
            f"the present {what} goes on"
        )
    return found


def _is_good_enough(quality: Quality, old: float, new: float, largest_loss: float) -> bool:
    loss = old - new if quality.more_is_better else new - old
    whole = 1.0 if quality.is_share else abs(old)
    # NaN is never enough.
    return loss * _PER_CENT <= largest_loss * whole
