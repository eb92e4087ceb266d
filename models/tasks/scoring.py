"""Count hits and log-losses; for words, a chunk of the vocabulary's scores at a time."""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import torch
from torch import Tensor

from models.layers.cross_entropy import vocabulary_chunks
from models.networks.language_model import LanguageModel
from models.tasks.metrics import SUGGESTION_SLOTS, Counts
from models.text.vocabulary import EOS, NEVER_SUGGESTED, UNK

WordScores = Callable[[LanguageModel, Tensor], Iterator[tuple[slice, Tensor]]]
"""Score every word from features, a range of tokens at a time, as ``chunked_logits`` does."""


def score(network: LanguageModel, features: Tensor, targets: Tensor) -> Counts:
    """Count hits among words, from float32 features, ``(tokens, embed)``, and right words."""
    counts = Counts()
    for chunk, logits in chunked_logits(network, features):
        counts += count_words(logits, targets[chunk])
    return counts


def count_words(logits: Tensor, targets: Tensor) -> Counts:
    """Count hits among words as a strip shows them, from float32 scores, ``(targets, vocab)``."""
    return msgspec.structs.replace(
        count_hits(logits, targets, never_given=NEVER_SUGGESTED),
        end_count=int((targets == EOS).sum()),
        unknown_count=int((targets == UNK).sum()),
    )


def count_hits(logits: Tensor, targets: Tensor, *, never_given: Sequence[int] = ()) -> Counts:
    """Count hits of float32 scores, ``(targets, answers)``, against int64 right answers.

    ``never_given`` are answers that are never given: they stand before no other, and as a target
    they are no hit.
    """
    losses = torch.logsumexp(logits, 1) - logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    ranks = words_ahead(logits, targets, never_given=never_given).sum(1)
    for answer in never_given:
        ranks[targets == answer] = logits.shape[1]
    return Counts(
        token_count=len(targets),
        log_loss_sum=float(losses.double().sum()),
        top1_hits=int((ranks == 0).sum()),
        top3_hits=int((ranks < SUGGESTION_SLOTS).sum()),
    )


def chunked_logits(network: LanguageModel, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of tokens with their logits, shape ``(tokens in range, vocab)``."""
    weight, bias = network.output_weight, network.output_bias
    for chunk in vocabulary_chunks(len(features), len(bias)):
        yield chunk, torch.addmm(bias, features[chunk], weight.t())


def words_ahead(logits: Tensor, targets: Tensor, *, never_given: Sequence[int] = ()) -> Tensor:
    """Return which words would be suggested before the right one, bool, ``(tokens, vocab)``.

    Words that are never given are ahead of none. Equal scores rank by word number, so a model that
    knows nothing does not hit by luck.
    """
    right = targets.unsqueeze(1)
    own = logits.gather(1, right)
    numbers = torch.arange(logits.shape[1], device=logits.device)
    ahead = (logits > own) | ((logits == own) & (numbers < right))
    for answer in never_given:
        ahead[:, answer] = False
    return ahead
