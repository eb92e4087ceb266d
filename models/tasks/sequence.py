"""Turn a sequence of symbols into another one: copy, reverse, or translate.

The decoder is trained and scored on the right target so far. Every target symbol and the end after
it is a target once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

import torch
from torch import Tensor
from torch.nn import functional

from models.networks.registry import Network, sequence_network
from models.networks.seq2seq import BEGIN, END, PADDING, Seq2Seq
from models.plan.plan import TrainingSettings
from models.settings.seq2seq import SPECIAL_COUNT
from models.tasks.metrics import Counts
from models.tasks.scoring import count_hits, words_ahead
from models.tasks.unusable_examples import UnusableExamplesError

Rule = Literal["copy", "reverse", "translate"]
"""How a target follows from its source; ``translate`` looks each symbol up and reverses."""


@dataclass(frozen=True)
class SequencePairs:
    """Sources with their targets, each padded at the end with ``PADDING``.

    Attributes:
        sources: Symbols, int64, shape ``(pairs, source time)``, at least one in a row.
        targets: Symbols without begin and end, int64, shape ``(pairs, target time)``.
    """

    sources: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, places: Tensor | slice) -> "SequencePairs":
        return SequencePairs(self.sources[places], self.targets[places])


def draw_pairs(
    rule: Rule,
    count: int,
    *,
    symbol_count: int,
    lengths: tuple[int, int],
    generator: torch.Generator,
    dictionary_seed: int = 0,
) -> SequencePairs:
    """Draw sequences of uniform symbols and uniform lengths, with the targets of a rule.

    ``symbol_count`` includes the three special ones; ``lengths`` are the shortest and the longest
    source; ``dictionary_seed`` decides the dictionary of ``translate``.
    """
    shortest, longest = lengths
    content = symbol_count - SPECIAL_COUNT
    if not (1 <= shortest <= longest and content >= 1 and count >= 1):
        raise ValueError(
            f"there must be a pair, a symbol and 1 <= shortest <= longest, got count {count}, "
            f"symbol_count {symbol_count} and lengths {lengths}"
        )
    drawn = torch.randint(shortest, longest + 1, (count, 1), generator=generator)
    padded = torch.arange(longest) >= drawn
    sources = torch.randint(SPECIAL_COUNT, symbol_count, (count, longest), generator=generator)
    sources.masked_fill_(padded, PADDING)
    match rule:
        case "copy":
            return SequencePairs(sources, sources.clone())
        case "reverse":
            return SequencePairs(sources, _reversed(sources, drawn))
        case "translate":
            words = torch.Generator().manual_seed(dictionary_seed)
            dictionary = torch.arange(symbol_count)
            dictionary[SPECIAL_COUNT:] = torch.randperm(content, generator=words) + SPECIAL_COUNT
            return SequencePairs(sources, dictionary[_reversed(sources, drawn)])
        case _:
            assert_never(rule)


def _reversed(sources: Tensor, lengths: Tensor) -> Tensor:
    """Return each row's symbols backwards, padding still at the end; lengths ``(pairs, 1)``."""
    places = lengths - 1 - torch.arange(sources.shape[1])
    return sources.gather(1, places.clamp(min=0)).masked_fill_(places < 0, PADDING)


class Sequences:
    """Learning from pairs of sequences."""

    def example_count(self, examples: SequencePairs) -> int:
        """Return the number of targets: every symbol, and an end for each pair."""
        return int((examples.targets != PADDING).sum()) + len(examples)

    def check(self, examples: SequencePairs, network: Network) -> None:
        """Check that there is a pair, and that all of them are padded sequences of symbols."""
        network = sequence_network(network)
        if not len(examples):
            raise UnusableExamplesError("there must be at least 1 pair to train on, got 0")
        _check_pairs(examples, network)

    def batches(
        self,
        examples: SequencePairs,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[SequencePairs]:
        """Yield every pair once in a drawn order, ``batch_size`` at a time."""
        order = torch.randperm(len(examples), generator=generator)
        for first in range(0, len(examples), training.batch_size):
            yield examples[order[first : first + training.batch_size]]

    def loss(
        self, network: Network, batch: SequencePairs, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean cross-entropy in nats, the number of targets, and None."""
        features, targets = self.features(network, batch)
        logits = sequence_network(network).head(features)
        return functional.cross_entropy(logits.float(), targets), len(targets), None

    def features(self, network: Network, batch: SequencePairs) -> tuple[Tensor, Tensor]:
        """See ``FeatureTask``."""
        network = sequence_network(network)
        device = network.head.weight.device
        pairs, longest = len(batch), batch.targets.shape[1]
        written = torch.cat([batch.targets.new_full((pairs, 1), BEGIN), batch.targets], dim=1)
        lengths = (batch.targets != PADDING).sum(1, keepdim=True)
        answers = torch.cat([batch.targets, batch.targets.new_full((pairs, 1), PADDING)], dim=1)
        answers.scatter_(1, lengths, END)
        used = torch.arange(longest + 1) <= lengths
        features = network.features(batch.sources.to(device), written.to(device))
        return features[used.to(device)], answers[used].to(device)

    @torch.no_grad()
    def evaluate(
        self, network: Network, users: Sequence[SequencePairs], *, batch_size: int = 64
    ) -> Counts:
        """Score every target of every pair once, given the right ones before it, in float32.

        A pair is an exact match if every target is hit. Writing one symbol after the other goes
        wrong at the same first mistake, since up to there it has read the right ones.
        """
        network = sequence_network(network).eval()
        counts = Counts()
        for user in users:
            _check_pairs(user, network)
            for first in range(0, len(user), batch_size):
                batch = user[first : first + batch_size]
                features, targets = self.features(network, batch)
                logits = network.head(features)
                counts += count_hits(logits, targets) + _count_exact(batch, logits, targets)
        return counts


def _count_exact(batch: SequencePairs, logits: Tensor, targets: Tensor) -> Counts:
    """Count the pairs whose targets are all hit; arguments in the order of ``features``."""
    lengths = (batch.targets != PADDING).sum(1) + 1
    pair_of_target = torch.arange(len(batch)).repeat_interleave(lengths)
    is_missed = words_ahead(logits, targets).any(1).cpu()
    missed = torch.bincount(pair_of_target[is_missed], minlength=len(batch))
    return Counts(sequence_count=len(batch), exact_matches=int((missed == 0).sum()))


def _check_pairs(pairs: SequencePairs, network: Seq2Seq) -> None:
    sources, targets = pairs.sources, pairs.targets
    for name, symbols, longest in (
        ("sources", sources, network.context_size),
        ("targets", targets, network.context_size - 1),
    ):
        if symbols.dtype is not torch.int64 or symbols.ndim != 2 or len(symbols) != len(sources):
            raise UnusableExamplesError(
                f"{name} must be int64 of shape (pairs, time), as many as sources, got "
                f"{symbols.dtype} of shape {tuple(symbols.shape)}"
            )
        if symbols.shape[1] > longest:
            raise UnusableExamplesError(
                f"{name} must have at most {longest} symbols, got {symbols.shape[1]}; raise "
                "context_size of the model"
            )
        _check_symbols(name, symbols, network.head.out_features)
    if len(sources) and not bool((sources[:, :1] != PADDING).any(1).all()):
        raise UnusableExamplesError("every source must have at least 1 symbol")


def _check_symbols(name: str, symbols: Tensor, symbol_count: int) -> None:
    content = symbols != PADDING
    known = (symbols >= SPECIAL_COUNT) & (symbols < symbol_count)
    if not bool((known | ~content).all()):
        raise UnusableExamplesError(
            f"symbols of {name} must be in [{SPECIAL_COUNT}, {symbol_count}), or 0 for padding"
        )
    if bool((content[:, 1:] & ~content[:, :-1]).any()):
        raise UnusableExamplesError(f"padding of {name} must stand at the end")
