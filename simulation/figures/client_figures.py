"""Sum up how well each client is served: over all targets, over clients, for the worst tenth."""

import statistics
from collections.abc import Callable, Mapping

from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import BESIDE_RECALL, Counts
from simulation.figures.metrics import Value

WORST_SHARE = 0.1
"""Share of the clients, at least one, whose mean is the figure of the worst."""

Figure = Callable[[Counts], float]
"""One figure of what was counted."""


def client_figures(
    counts: Mapping[str, Counts], *, is_text: bool, of_words: bool = False
) -> dict[str, Value]:
    """Return the figures of all clients, each scored on its own examples with its own model.

    ``accuracy`` is pooled (hits over targets; of words ``top1_recall``),
    ``accuracy_clients_mean`` the mean of the clients' own, and ``accuracy_clients_worst_decile``
    the mean over the worst tenth. Clients without a target, of words without a typed word, do not
    count; without any there are no figures. Text adds recall of three suggestions and perplexity,
    words what belongs beside recall, pooled, and sequences how many would be written without a
    mistake.
    """
    scored = [own for own in counts.values() if own.word_count]
    if not scored:
        return {}
    figures = over_counts("accuracy", lambda own: own.top1_recall, scored, least_is_worst=True)
    if is_text:
        figures |= over_counts(
            "top3_recall", lambda own: own.top3_recall, scored, least_is_worst=True
        )
        figures |= over_counts(
            "perplexity", lambda own: own.perplexity, scored, least_is_worst=False
        )
    if of_words:
        beside = sum(scored, start=Counts()).figures(of_words=True)
        figures |= {name: beside[name] for name in BESIDE_RECALL if name in beside}
    sequences = [own for own in scored if own.sequence_count]
    if sequences:
        figures |= over_counts(
            "exact_match", lambda own: own.exact_match, sequences, least_is_worst=True
        )
    return figures


def keystroke_figures(keys: Mapping[str, KeystrokeCounts]) -> dict[str, Value]:
    """Return what all clients save, each with its own model on its own text.

    Savings are pooled, over clients and for the worst tenth, beside the pooled ceiling; there are
    none where nobody typed a word.
    """
    typed = [own for own in keys.values() if own.keys_without]
    if not typed:
        return {}
    pooled = sum(typed, start=KeystrokeCounts())
    savings = _over_clients("keystroke_savings", [own.savings for own in typed])
    return {
        "keystroke_savings": pooled.savings,
        **savings,
        "keystroke_ceiling": pooled.ceiling,
    }


def over_counts(
    name: str, figure: Figure, scored: list[Counts], *, least_is_worst: bool
) -> dict[str, Value]:
    """Return a figure pooled, and its mean over all clients and over the worst tenth."""
    own = list(map(figure, scored))
    pooled = figure(sum(scored, start=Counts()))
    return {name: pooled, **_over_clients(name, own, least_is_worst=least_is_worst)}


def _over_clients(name: str, own: list[float], *, least_is_worst: bool = True) -> dict[str, Value]:
    own = sorted(own, reverse=not least_is_worst)
    worst = own[: max(1, int(len(own) * WORST_SHARE))]
    return {
        f"{name}_clients_mean": statistics.fmean(own),
        f"{name}_clients_worst_decile": statistics.fmean(worst),
    }
