"""Measure a run's models: the released one on others' examples, and each client's on its own.

A client's model is what is released, what is generated for it and what it keeps; all clients are
scored, also those that were never drawn. The released model alone can only be scored where every
tensor is shared.
"""

from collections.abc import Mapping

from models.metrics import Counts
from models.plan import Plan, plan_schema, released_schema
from simulation.client_figures import client_figures
from simulation.federation import Federation
from simulation.metrics import Value
from simulation.population import Population, own_name
from simulation.workers import WorkerPool

_TEXT_TASKS = frozenset({"next_word", "next_character"})


class Measures:
    """Score the models of one run."""

    def __init__(self, plan: Plan, population: Population, pool: WorkerPool) -> None:
        """Score whom the population holds out, with the pool's processes."""
        self._plan = plan
        self._population = population
        self._pool = pool
        self._releases_whole_model = released_schema(plan) == plan_schema(plan)

    def figures(
        self, federation: Federation, split: str, own: Mapping[str, Counts]
    ) -> dict[str, Value]:
        """Return the figures of a split over all its targets; none where nothing is held out.

        Args:
            federation: Holds what is released.
            split: ``valid`` or ``test``.
            own: What clients' own models make of their own examples, as ``clients`` returns it.
        """
        counts = sum(own.values(), start=self._others(federation, split))
        if not counts.token_count:
            return {}
        return {
            f"{split}_perplexity": counts.perplexity,
            f"{split}_top1_recall": counts.top1_recall,
            f"{split}_top3_recall": counts.top3_recall,
        }

    def clients(
        self, federation: Federation, split: str, *, round_number: int
    ) -> Mapping[str, Counts]:
        """Return what each client's own model makes of its own examples of a split, by client.

        Args:
            federation: Holds what is released and generated.
            split: ``valid`` or ``test``.
            round_number: Round whose personal states are used.
        """
        return self._pool.score_clients(
            federation.parameters,
            {client: own_name(split, client) for client in self._population.own(split)},
            round_number=round_number,
            generate=federation.generated_for,
        )

    def of_clients(self, own: Mapping[str, Counts]) -> dict[str, Value]:
        """Return the figures over all clients; see ``simulation.client_figures``."""
        return client_figures(own, is_text=self._plan.task in _TEXT_TASKS)

    def _others(self, federation: Federation, split: str) -> Counts:
        """Score the released model on those who are no clients."""
        if not self._releases_whole_model:
            return Counts()
        groups = self._population.groups(split)
        named = [[f"{split}/{name}" for name in names] for names in groups]
        return sum(self._pool.evaluate(federation.parameters, named), start=Counts())
