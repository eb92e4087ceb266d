"""A simulated population: everybody's examples, of whatever task.

Clients are named as a coordinator names devices, in an order that the data set fixes, so slots and
seeds depend on nothing else. Held-out examples are never trained on: each client's own, on which
everybody's model is measured, and splits of other people's, as published data sets have them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from edge_client.datasets.text_set import Sentence
from models.text.vocabulary import Vocabulary
from simulation.population.examples import Examples
from simulation.population.partition_record import PartitionRecord

# Held-out text of one user is scored in pieces of about this many tokens, cut between sentences,
# so that several workers share it. The cuts depend on the text alone, so no figure depends on
# the number of workers.
PIECE_SIZE = 8192


class PopulationError(ValueError):
    """Raised when a data set cannot make the population that is asked for."""


class NovelClient(NamedTuple):
    """A client kept out of training: examples to fit a model to, and examples to score it on."""

    train: Examples
    test: Examples


@dataclass(frozen=True, kw_only=True)
class Population:
    """The examples of everybody in a simulation.

    Attributes:
        clients: Training examples of every client by name.
        own_valid: Clients' own examples for choosing settings; clients with none are missing.
        own_test: Clients' own examples that are scored at the end; clients with none are missing.
        held_out: Others' held-out examples by split (``valid``, ``test``) and name; a long text is
            several, cut between sentences.
        novel: Clients that no round draws; see ``simulation.population.novel_clients``.
        vocabulary: The word list that text is encoded with; None for a task without words.
        notes: Things left out and why, one line each.
        partition: The record of the deal, for the run's folder; None where nothing was dealt.
    """

    clients: Mapping[str, Examples]
    own_valid: Mapping[str, Examples] = field(default_factory=dict)
    own_test: Mapping[str, Examples] = field(default_factory=dict)
    held_out: Mapping[str, Mapping[str, Examples]]
    novel: Mapping[str, NovelClient] = field(default_factory=dict)
    vocabulary: Vocabulary | None = None
    notes: Sequence[str] = ()
    partition: PartitionRecord | None = None

    def own(self, split: str) -> Mapping[str, Examples]:
        """Return the clients' own examples of a split, ``valid`` or ``test``."""
        return {"valid": self.own_valid, "test": self.own_test}[split]

    def groups(self, split: str) -> list[list[str]]:
        """Return the names of a split's held-out examples in groups, each for one worker."""
        groups: list[list[str]] = []
        room = 0
        for name, examples in self.held_out.get(split, {}).items():
            if room <= 0:
                groups.append([])
                room = PIECE_SIZE
            groups[-1].append(name)
            room -= len(examples)
        return groups

    def named_examples(self) -> dict[str, Examples]:
        """Return all examples by name, as ``CLIENT``, ``test/NAME`` or ``own-test/CLIENT``."""
        named = dict(self.clients)
        for split in ("valid", "test"):
            others = self.held_out.get(split, {})
            named |= {f"{split}/{name}": examples for name, examples in others.items()}
            named |= {own_name(split, name): own for name, own in self.own(split).items()}
        return named


@dataclass(frozen=True, kw_only=True)
class TextPopulation(Population):
    """A population of people who type words; every stream is int64, shape ``(time,)``.

    ``typed`` is the test text in words, sentences by user; ``own_typed`` what clients hold out, and
    ``own_older`` what they train on, both only where clients are scored on their own text.
    """

    clients: Mapping[str, Tensor]
    own_valid: Mapping[str, Tensor] = field(default_factory=dict)
    own_test: Mapping[str, Tensor] = field(default_factory=dict)
    held_out: Mapping[str, Mapping[str, Tensor]]
    vocabulary: Vocabulary
    typed: Sequence[Sequence[Sentence]]
    own_typed: Mapping[str, Sequence[Sentence]] = field(default_factory=dict)
    own_older: Mapping[str, Sequence[Sentence]] = field(default_factory=dict)


def client_name(number: int) -> str:
    """Return the name of a client, from 1, as a coordinator names devices as they enrol."""
    return f"device-{number:04}"


def own_name(split: str, client: str) -> str:
    """Return the name under which a client's own examples of a split are known to workers."""
    return f"own-{split}/{client}"


def as_text(population: Population) -> TextPopulation:
    """Return the population, whose task has words.

    Raises:
        PopulationError: If it has none.
    """
    if isinstance(population, TextPopulation):
        return population
    raise PopulationError('this needs clients who type words: use task = "next_word"')
