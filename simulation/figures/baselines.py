"""Score what a model must beat: a unigram and an interpolated bigram on the same split.

Both are fitted on the pooled training text, which no federation could see. Tokens are scored as the
networks' are: every token of every stream once, the first with ``<eos>`` as its context; recall is
over typed words, and neither ``<eos>`` nor ``<unk>`` is suggested.

References:
    Jelinek and Mercer, "Interpolated estimation of Markov source parameters from sparse data",
        1980.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from models.tasks.metrics import Counts
from models.text.vocabulary import EOS, NEVER_SUGGESTED, UNK
from simulation.figures.client_figures import client_figures
from simulation.population.population import TextPopulation

Tokens = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_EM_STEPS = 30
_SUGGESTIONS = 3
_COUNTED_TENTHS = 9  # Of each client's training text, where there is no text to validate on.


class Unigram:
    """Every word by its frequency, one added to each count; probabilities of shape ``(vocab,)``."""

    def __init__(self, streams: Sequence[Tokens], vocabulary_size: int) -> None:
        """Count the words of the streams, each of shape ``(time,)``."""
        counts = np.ones(vocabulary_size)
        for stream in streams:
            counts += np.bincount(stream, minlength=vocabulary_size)
        self.probabilities: Floats = counts / counts.sum()
        ranked = np.argsort(-self.probabilities, kind="stable")
        self.most_frequent: Tokens = ranked[~np.isin(ranked, NEVER_SUGGESTED)][:_SUGGESTIONS]

    def score(self, streams: Sequence[Tokens]) -> Counts:
        """Return the counts over every token of the streams."""
        targets = np.concatenate(streams)
        shown = np.broadcast_to(self.most_frequent, (targets.size, self.most_frequent.size))
        return _counts(targets, self.probabilities[targets], shown)


class InterpolatedBigram:
    """A mix of the bigram's and the unigram's estimate: λ c(v, w)/c(v) + (1 - λ) P(w).

    λ depends on how often the context was seen (one value for each power of two) and is fitted by
    expectation maximisation on the validation split (deleted interpolation).
    """

    def __init__(
        self, train: Sequence[Tokens], valid: Sequence[Tokens], vocabulary_size: int
    ) -> None:
        """Count on ``train`` and fit the mixture on ``valid``; streams of shape ``(time,)``."""
        self._vocabulary_size = vocabulary_size
        self.count(train)
        self._weights = self._fit(*_pairs(valid))

    def count(self, train: Sequence[Tokens]) -> None:
        """Count on these streams alone, of shape ``(time,)``, and leave the mixture as it is."""
        size = self._vocabulary_size
        self._unigram = Unigram(train, size)
        contexts, targets = _pairs(train)
        self._pairs, self._pair_counts = np.unique(contexts * size + targets, return_counts=True)
        self._context_counts = np.bincount(contexts, minlength=size)
        self._bucket = np.ceil(np.log2(self._context_counts + 1)).astype(np.int64)

    def score(self, streams: Sequence[Tokens]) -> Counts:
        """Return the counts over every token of the streams."""
        contexts, targets = _pairs(streams)
        weight = self._weight(contexts)
        mixed = weight * self._relative(contexts, targets) + (1 - weight) * self._below(targets)
        best = {int(context): self._suggest(int(context)) for context in np.unique(contexts)}
        ranked = np.stack([best[int(context)] for context in contexts])
        return _counts(targets, mixed, ranked)

    def distribution(self, context: int) -> Floats:
        """Return the probability of every word after a context, shape ``(vocab,)``."""
        words = np.arange(self._vocabulary_size)
        weight = self._weight(np.array(context))
        relative = self._relative(np.full(words.size, context), words)
        mixed: Floats = weight * relative + (1 - weight) * self._below(words)
        return mixed

    def _weight(self, contexts: Tokens) -> Floats:
        """Return λ of each context; those seen more often than any before have that one's."""
        weights: Floats = self._weights[np.minimum(self._bucket[contexts], self._weights.size - 1)]
        return weights

    def _relative(self, contexts: Tokens, targets: Tokens) -> Floats:
        """Return c(v, w)/c(v) of each pair, 0 where it was never seen."""
        keys = contexts * self._vocabulary_size + targets
        places = np.minimum(np.searchsorted(self._pairs, keys), self._pairs.size - 1)
        seen = np.where(self._pairs[places] == keys, self._pair_counts[places], 0)
        relative: Floats = seen / np.maximum(self._context_counts[contexts], 1)
        return relative

    def _below(self, targets: Tokens) -> Floats:
        return self._unigram.probabilities[targets]

    def _fit(self, contexts: Tokens, targets: Tokens) -> Floats:
        """Return λ of each bucket, shape ``(buckets,)``; a context never seen has λ = 0."""
        relative, below = self._relative(contexts, targets), self._below(targets)
        bucket = self._bucket[contexts]
        size = int(self._bucket.max()) + 1
        weights = np.full(size, 0.5)
        totals = np.bincount(bucket, minlength=size)
        for _ in range(_EM_STEPS):
            share = weights[bucket] * relative
            share = share / (share + (1 - weights[bucket]) * below)
            # One token more on either side: λ = 1 would call a pair not seen yet impossible.
            weights = (np.bincount(bucket, weights=share, minlength=size) + 1) / (totals + 2)
        weights[0] = 0.0
        return weights

    def _suggest(self, context: int) -> Tokens:
        """Return the three most probable words after a context, best first."""
        low, high = np.searchsorted(
            self._pairs, [context * self._vocabulary_size, (context + 1) * self._vocabulary_size]
        )
        # Every word that never followed ranks by its frequency: three of those are enough.
        followers = self._pairs[low:high] - context * self._vocabulary_size
        words = np.union1d(
            followers[~np.isin(followers, NEVER_SUGGESTED)], self._unigram.most_frequent
        )
        weight = self._weight(np.array(context))
        relative = self._relative(np.full(words.size, context), words)
        scores = weight * relative + (1 - weight) * self._below(words)
        return words[np.argsort(-scores, kind="stable")[:_SUGGESTIONS]]


def _counts(targets: Tokens, probabilities: Floats, shown: Tokens) -> Counts:
    """Count hits of the words on show, shape ``(time, up to 3)``, best first."""
    hits = shown == targets[:, None]
    return Counts(
        token_count=targets.size,
        log_loss_sum=float(-np.log(probabilities).sum()),
        top1_hits=int(hits[:, 0].sum()),
        top3_hits=int(hits.sum()),
        end_count=int((targets == EOS).sum()),
        unknown_count=int((targets == UNK).sum()),
    )


def _pairs(streams: Sequence[Tokens]) -> tuple[Tokens, Tokens]:
    """Return every token's context and the token, both of shape ``(all tokens,)``."""
    targets = np.concatenate(streams)
    # A text of which nothing is left (links, numbers) has no first token either.
    contexts = [np.concatenate(([EOS], stream[:-1])) for stream in streams if stream.size]
    return np.concatenate(contexts), targets


def baseline_figures(population: TextPopulation) -> dict[str, dict[str, float]]:
    """Return the test figures of both baselines, fitted on the pooled training text, by name.

    Where clients hold out text of their own, it is scored, and each client's figures are summed up
    too. There is no validation text then: the mixture is fitted on the newest tenth of each
    client's training text with the pairs of the rest, which are then counted in all of it.
    """
    size = len(population.vocabulary)
    train = [stream.numpy() for stream in population.clients.values()]
    if population.own_test:
        older = [stream[: _counted(stream)] for stream in train]
        newest = [stream[_counted(stream) :] for stream in train]
        bigram = InterpolatedBigram(older, newest, size)
        bigram.count(train)
        return _own_figures(population, {"unigram": Unigram(train, size), "bigram": bigram})
    valid, test = (
        [stream.numpy() for stream in population.held_out[split].values()]
        for split in ("valid", "test")
    )
    scores = {
        "unigram": Unigram(train, size).score(test),
        "bigram": InterpolatedBigram(train, valid, size).score(test),
    }
    return {name: _test_figures(counts) for name, counts in scores.items()}


def _counted(stream: Tokens) -> int:
    return len(stream) * _COUNTED_TENTHS // 10


def _own_figures(
    population: TextPopulation, models: Mapping[str, Unigram | InterpolatedBigram]
) -> dict[str, dict[str, float]]:
    found = {}
    for name, model in models.items():
        own = {
            client: model.score([stream.numpy()])
            for client, stream in population.own_test.items()
            if len(stream)
        }
        summed = client_figures(own, is_text=True, of_words=True)
        numbers = {figure: float(value) for figure, value in summed.items() if value is not None}
        found[name] = _test_figures(sum(own.values(), start=Counts())) | numbers
    return found


def _test_figures(counts: Counts) -> dict[str, float]:
    return {f"test_{name}": value for name, value in counts.figures(of_words=True).items()}
