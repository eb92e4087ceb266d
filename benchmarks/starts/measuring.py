"""Measure a finished run's model on every person's newest fifth, with four keyboards each.

The model is that of the last round, so none was chosen by the text that is scored. A device adapts
it as after a check-in of kind ``fit_personal``, by the same code. Each person is a line of a file
in the run's folder once they are done: a command that was stopped goes on with the next.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from torch import Tensor, from_numpy

from benchmarks.starts.rows import ADAPTED, PEOPLE, SHARED
from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.maker import configured, with_curve
from benchmarks.tables.records import Outcome, append_line, rounds_with
from edge_client.descent.compute import prepare_compute
from edge_client.personalisation.adapted import Comparison, comparison_of
from edge_client.personalisation.own_model import own_model
from edge_client.training.new_client import Fitted, NewClientFit
from export.runtime.word_index import WordIndex
from models.networks.flat_parameters import load_parameters, parameters_sha256
from models.networks.registry import WordNetwork, build_network, word_network
from models.plan.plan import Plan, plan_schema
from models.settings.hypernetwork import EmbeddingFitSettings
from server.releases.files import ReleaseFolder
from server.releases.starting_model import starting_parameters
from simulation.config.simulation import SimulationConfig
from simulation.figures.baselines import baseline_figures
from simulation.figures.metrics import Figures
from simulation.figures.own_words import Typed, type_both_ways
from simulation.population.dealing import build_population
from simulation.population.population import TextPopulation, as_text
from simulation.runs.checkpoint import RELEASES_FOLDER

PEOPLE_FILE = "people.jsonl"
ALONE, WITH_WORDS = "alone", "with own words"
CURVE = ("valid_perplexity", "valid_top3_recall")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """One person's keyboards on their newest fifth.

    Attributes:
        typed: Counts by model (``shared``; ``start`` and ``adapted`` where asked for) and by
            whether the person's own words stand beside it.
        words_before: Words of their older messages, which they train on.
        compared: By what the adapted model was chosen; None where none was asked for.
    """

    client: str
    typed: dict[str, dict[str, Typed]]
    words_before: int
    compared: Comparison | None = None


def with_people(table: TableDefinition, folder: Path, data: Path | None, final: Figures) -> Outcome:
    """Return a run's figures, with those of every person where the table is about people."""
    if table.figures != PEOPLE:
        return with_curve(table, folder, data, final)
    config, _ = configured(table)
    plan, shared = _released(folder)
    people = by_time(config, data)
    adapts = folder.name.startswith(SHARED.replace(" ", "-"))
    start = starting_parameters(config, plan) if adapts else None
    measured = measure_people(plan, people, shared, start, folder / PEOPLE_FILE)
    own = {one.client: msgspec.to_builtins(one) for one in measured}
    more: dict[str, object] = {"people": own}
    if start is not None:
        # A start that ships may be replaced by a better one under the same name.
        more["start_sha256"] = parameters_sha256(start).hex()
        more["floors"] = baseline_figures(people)
    return Outcome(final=dict(final), rounds=rounds_with(folder, *CURVE), more=more)


def by_time(config: SimulationConfig, data: Path | None) -> TextPopulation:
    """Return the run's people, each with their own newest fifth."""
    own = msgspec.structs.replace(config.data, split="by-user-time")
    return as_text(build_population(msgspec.structs.replace(config, data=own), data))


def measure_people(
    plan: Plan, people: TextPopulation, shared: Tensor, start: Tensor | None, path: Path
) -> list[Person]:
    """Return everybody's figures, and write those that a file does not hold yet to it.

    Args:
        shared: The model that everyone has, flat float32.
        start: The model that it came from; None measures neither that nor adapted models.
        path: One person a line.
    """
    prepare_compute("cpu", threads=1, model=plan.model)
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    done = {one.client: one for one in (msgspec.json.decode(line, type=Person) for line in lines)}
    measuring = _Measuring(plan, people, shared, start)
    for person in measuring.missing(done):
        append_line(path, msgspec.json.encode(person))
        done[person.client] = person
    return [done[client] for client in people.own_typed]


class _Measuring:
    """One model, the start that it came from, and everybody's text."""

    def __init__(
        self, plan: Plan, people: TextPopulation, shared: Tensor, start: Tensor | None
    ) -> None:
        self._plan = plan
        self._people = people
        self._shared = shared
        self._start = start
        self._index = WordIndex(people.vocabulary)
        adapted = msgspec.structs.replace(plan, personalisation=ADAPTED)
        self._fit = NewClientFit(adapted)

    def missing(self, done: Mapping[str, Person]) -> Iterator[Person]:
        """Measure those who are not done, in order of their names."""
        for client in self._people.own_typed:
            if client not in done:
                yield self._person(client)

    def _person(self, client: str) -> Person:
        models, compared = {"shared": self._shared}, None
        if self._start is not None:
            models["start"] = self._start
            adapted, compared = self._adapted(client)
            if compared.keeps_own:
                models["adapted"] = adapted
        both = type_both_ways(
            [self._network(model) for model in models.values()],
            self._people.vocabulary,
            self._index,
            before=self._people.own_older[client],
            typed=self._people.own_typed[client],
        )
        typed = {
            name: {ALONE: way.alone, WITH_WORDS: way.with_own_words}
            for name, way in zip(models, both, strict=True)
        }
        if compared is not None and not compared.keeps_own:
            typed["adapted"] = typed["shared"]
        words_before = sum(map(len, self._people.own_older[client]))
        return Person(client=client, typed=typed, words_before=words_before, compared=compared)

    def _network(self, model: Tensor) -> WordNetwork:
        network = word_network(build_network(self._plan.model))
        load_parameters(network, plan_schema(self._plan), model)
        return network

    def _adapted(self, client: str) -> tuple[Tensor, Comparison]:
        last: list[Fitted] = []
        self._fit.fit(
            self._shared,
            self._people.clients[client],
            client_name=client,
            settings=EmbeddingFitSettings(),
            after_epoch=lambda _, fitted: last.append(fitted),
        )
        extras = last[-1].personal.extras
        return own_model(plan_schema(self._plan), extras), comparison_of(extras)


def _released(folder: Path) -> tuple[Plan, Tensor]:
    """Return the plan and the parameters of a run's last round."""
    releases = ReleaseFolder(folder / RELEASES_FOLDER)
    newest = releases.pointed("latest")
    if newest is None:
        raise ValueError(f"{folder} must hold a release of its last round, it has none")
    stored = releases.read(newest)
    return stored.plan, from_numpy(stored.parameters.copy())
