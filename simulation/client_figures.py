"""Sum up how well each client is served: over all targets, over clients, for the worst tenth."""

import statistics
from collections.abc import Callable, Mapping

from models.metrics import Counts
from simulation.metrics import Value

WORST_SHARE = 0.1
"""Share of the clients, at least one, whose mean is the figure of the worst."""

_Figure = Callable[[Counts], float]


def client_figures(counts: Mapping[str, Counts], *, is_text: bool) -> dict[str, Value]:
    """Return the figures of all clients, each scored on its own examples with its own model.

    ``accuracy`` is pooled (hits over targets), ``accuracy_clients_mean`` the mean of the clients'
    own, and ``accuracy_clients_worst_decile`` the mean over the tenth that is worst off. A client
    without a target counts nowhere. Sequences add how many would be written without a mistake.

    Args:
        counts: By client; may be empty.
        is_text: Whether recall of three suggestions and perplexity say something too.

    Returns:
        The figures by name; none where there is no target.
    """
    scored = [own for own in counts.values() if own.token_count]
    if not scored:
        return {}
    figures = _of("accuracy", lambda own: own.top1_recall, scored, least_is_worst=True)
    if is_text:
        figures |= _of("top3_recall", lambda own: own.top3_recall, scored, least_is_worst=True)
        figures |= _of("perplexity", lambda own: own.perplexity, scored, least_is_worst=False)
    sequences = [own for own in scored if own.sequence_count]
    if sequences:
        figures |= _of("exact_match", lambda own: own.exact_match, sequences, least_is_worst=True)
    return figures


def _of(
    name: str, figure: _Figure, scored: list[Counts], *, least_is_worst: bool
) -> dict[str, Value]:
    own = sorted(map(figure, scored), reverse=not least_is_worst)
    worst = own[: max(1, int(len(own) * WORST_SHARE))]
    return {
        name: figure(sum(scored, start=Counts())),
        f"{name}_clients_mean": statistics.fmean(own),
        f"{name}_clients_worst_decile": statistics.fmean(worst),
    }
