"""Let a client's own training examples vote when it predicts: FedTP+kNN.

Training is as without. To predict, a client makes features of all its training examples with the
model it now has, and forgets them again: they are never kept in a file, and never sent.

References:
    [kNN-Per] Marfoq et al., ICML 2022, arXiv:2111.09360.
    [FedTP] Li et al., arXiv:2211.01572, section IV-G.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from edge_client.personalisation.method import ClientHalf, ClientRound, ClientScoring, Learnt
from edge_client.personalisation.plain import PlainHalf
from models.networks.language_model import LanguageModel
from models.networks.registry import Network, WordNetwork, word_network
from models.personal.neighbours import NeighbourStore, require_faiss, stored_places
from models.settings.personalisation import NeighbourSettings
from models.tasks.feature_task import FeatureTask, feature_task, head_of
from models.tasks.metrics import Counts
from models.tasks.next_word import NextWord
from models.tasks.registry import Task
from models.tasks.scoring import WordScores, chunked_logits, count_words
from models.tasks.text_streams import scored_features
from models.vector.schema import Schema, TensorSpec

_EXAMPLES_AT_ONCE = 64  # While the store is made; a constant, so that it depends on nothing else.


class NeighboursHalf:
    """Training as the task does it; prediction by the network and the client's nearest examples."""

    def __init__(self, settings: NeighbourSettings) -> None:
        """Prepare for prediction.

        Raises:
            MissingFaissError: If FAISS is not installed: now, not when all rounds are over.
        """
        require_faiss()
        self._settings = settings
        self._plain: ClientHalf = PlainHalf()

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return nothing: neighbours are made anew whenever they are needed."""
        return ()

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return nothing."""
        return {}

    def train(self, client: ClientRound) -> Learnt:
        """Run every local epoch."""
        return self._plain.train(client)

    @torch.no_grad()
    def evaluate(self, client: ClientScoring) -> Counts:
        """Score network and neighbours together; the network alone where there is nobody to ask."""
        known = client.training_examples
        if known is None or not client.task.example_count(known):
            return self._plain.evaluate(client)
        reader = _reader(client.task, client.network)
        client.network.eval()
        store = self._store(reader, known, client.generator)
        counts = Counts()
        for features, targets in reader.read(client.examples, batch_size=client.batch_size):
            for rows, logits in reader.logits(features):
                mixed = store.mix(logits, features[rows])
                counts += reader.count(mixed, targets[rows])
        return counts

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Return scores in which the client's own text votes, where it has some."""
        known = client.training_examples
        if known is None or not client.task.example_count(known):
            return chunked_logits
        client.network.eval()
        with torch.no_grad():
            store = self._store(_Words(word_network(client.network)), known, client.generator)

        def scores(network: LanguageModel, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
            for rows, logits in chunked_logits(network, features):
                yield rows, store.mix(logits, features[rows])

        return scores

    def _store(
        self,
        reader: "_Reader",
        known: Any,  # examples of the plan's task
        generator: torch.Generator,
    ) -> NeighbourStore:
        parts = list(reader.read(known, batch_size=_EXAMPLES_AT_ONCE))
        features, targets = (torch.cat(values) for values in zip(*parts, strict=True))
        kept = stored_places(len(targets), self._settings.capacity, generator).to(targets.device)
        return NeighbourStore(features[kept], targets[kept], self._settings)


class _Reader(Protocol):
    """A reader of features, targets and logits of one network, whatever the task."""

    # Any: examples of the plan's task.
    def read(self, examples: Any, *, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield features, shape ``(targets, embed)``, and targets, ``(targets,)``."""
        ...

    def logits(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield a range of targets and its logits, shape ``(targets in range, classes)``."""
        ...

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        """Count what scores make of the right answers."""
        ...


class _Classes:
    """A reader for a task of few classes."""

    def __init__(self, task: FeatureTask[Any, Any], network: Network) -> None:
        self._task = task
        self._network = network

    def read(self, examples: Any, *, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._task.scored_batches(self._network, examples, batch_size=batch_size):
            yield self._task.features(self._network, batch)

    def logits(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        yield slice(None), head_of(self._network)(features)

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        return self._task.count(logits, targets)


class _Words:
    """A reader for next words, whose scores are too many to make at once."""

    def __init__(self, network: WordNetwork) -> None:
        self._network = network

    def read(self, examples: Tensor, *, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        if not len(examples):
            return
        for features, places in scored_features(self._network, [examples], batch_size=batch_size):
            yield features, examples[places].to(features.device)

    def logits(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        yield from chunked_logits(self._network, features)

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        return count_words(logits, targets)


def _reader(task: Task[Any, Any], network: Network) -> _Reader:
    if isinstance(task, NextWord):
        return _Words(word_network(network))
    return _Classes(feature_task(task, "fedtp"), network)
