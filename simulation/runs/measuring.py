"""Measure a run's models: the released one on others' examples, and each client's on its own.

A client's model is the release, its generated tensors and its own; all clients are scored, also
those never drawn. The released model alone is scored only where every tensor is shared.
"""

from collections.abc import Mapping, Sequence

from models.plan.plan import Plan, plan_schema, released_schema
from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from models.tasks.plugin_task import figures_of_plugin
from simulation.figures.client_figures import client_figures, keystroke_figures
from simulation.figures.metrics import Value
from simulation.figures.speech_figures import speech_figures, split_figures
from simulation.figures.vocoder_figures import vocoder_figures, vocoder_split_figures
from simulation.population.population import Population, as_text, own_name
from simulation.rounds.federation import Federation
from simulation.workers.fine_tuning import OwnScore, TypedText
from simulation.workers.pool import WorkerPool

_TEXT_TASKS = frozenset({"next_word", "next_character"})
_SPEECH = "speech"
_VOCODER = "vocoder"


class Measures:
    """The measures of one run's models."""

    def __init__(self, plan: Plan, population: Population, pool: WorkerPool) -> None:
        self._plan = plan
        self._population = population
        self._pool = pool
        self._has_words = plan.vocabulary is not None
        self._releases_whole_model = released_schema(plan) == plan_schema(plan)

    def figures(
        self, federation: Federation, split: str, own: Mapping[str, Counts]
    ) -> dict[str, Value]:
        """Return the figures of a split over all targets; none if nothing is held out.

        ``split`` is ``valid`` or ``test``, and ``own`` is as ``clients`` returns it.
        """
        counts = sum(own.values(), start=self._others(federation, split))
        if not counts.token_count:
            return {}
        if self._plan.task == _SPEECH:
            return split_figures(split, counts)
        if self._plan.task == _VOCODER:
            return vocoder_split_figures(split, counts)
        figures = counts.figures(of_words=self._has_words) | figures_of_plugin(
            self._plan.task, counts
        )
        return {f"{split}_{name}": value for name, value in figures.items()}

    def clients(
        self, federation: Federation, split: str, *, round_number: int
    ) -> Mapping[str, Counts]:
        """Return the counts of each client's own model on its examples of ``valid`` or ``test``."""
        return self._pool.score_clients(
            federation.parameters,
            self._scored(split),
            round_number=round_number,
            generate=federation.generated_for,
        )

    def asked(self, federation: Federation, clients: Sequence[str]) -> Sequence[Counts]:
        """Return the counts of some clients' own models on what they hold out for settings.

        Models are those of the federation's last round; clients that hold out nothing are missing.
        """
        held_out = self._scored("valid")
        counts = self._pool.score_clients(
            federation.parameters,
            {name: held_out[name] for name in clients if name in held_out},
            round_number=federation.round_number,
            generate=federation.generated_for,
        )
        return list(counts.values())

    def keystrokes(
        self, federation: Federation, *, round_number: int
    ) -> Mapping[str, KeystrokeCounts]:
        """Return the keys that each client's own model would save on its own text, by client.

        Raises:
            PopulationError: If the clients type no words.
        """
        return self._pool.type_texts(
            federation.parameters,
            self._typed(),
            round_number=round_number,
            generate=federation.generated_for,
        )

    def fine_tuned(
        self, federation: Federation, epochs: Sequence[int], *, round_number: int, with_keys: bool
    ) -> dict[int, dict[str, OwnScore]]:
        """Return each client's score after it trained the released model on, by epochs and client.

        ``epochs`` rise; the released model must be a whole one.

        Raises:
            PopulationError: If keys are to be counted, and the clients type no words.
        """
        tuned = self._pool.fine_tune(
            federation.parameters,
            self._scored("test"),
            epochs,
            round_number=round_number,
            texts=self._typed() if with_keys else None,
        )
        return {
            after: {client: scores[place] for client, scores in tuned.items()}
            for place, after in enumerate(epochs)
        }

    def of_clients(self, own: Mapping[str, Counts]) -> dict[str, Value]:
        """Return the figures over all clients, as ``simulation.figures`` has them for the task."""
        if self._plan.task == _SPEECH:
            return speech_figures(own)
        if self._plan.task == _VOCODER:
            return vocoder_figures(own)
        is_text = self._plan.task in _TEXT_TASKS
        return client_figures(own, is_text=is_text, of_words=self._has_words)

    def of_scores(self, own: Mapping[str, OwnScore]) -> dict[str, Value]:
        """Return the figures over all clients of scores with or without keys."""
        keys = {client: score.keys for client, score in own.items() if score.keys is not None}
        counts = {client: score.counts for client, score in own.items()}
        return self.of_clients(counts) | keystroke_figures(keys)

    def _scored(self, split: str) -> dict[str, str]:
        return {client: own_name(split, client) for client in self._population.own(split)}

    def _typed(self) -> dict[str, TypedText]:
        population = as_text(self._population)
        return {
            client: TypedText(sentences, population.vocabulary)
            for client, sentences in population.own_typed.items()
        }

    def _others(self, federation: Federation, split: str) -> Counts:
        """Score the released model on those who are no clients."""
        if not self._releases_whole_model:
            return Counts()
        groups = self._population.groups(split)
        named = [[f"{split}/{name}" for name in names] for names in groups]
        return sum(self._pool.evaluate(federation.parameters, named), start=Counts())
