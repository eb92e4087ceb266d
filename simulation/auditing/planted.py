"""Plant secrets in clients' text, train, and measure how exposed they are in the released model.

A secret is a sentence: some common words that are the same in all, then random ones. References are
drawn alike and never planted. The loss on the random words counts, see
``privacy.auditing.exposure``.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from models.networks.language_model import LanguageModel
from models.text.vocabulary import EOS
from privacy.auditing.exposure import LEAST_REFERENCES
from privacy.auditing.scores import AuditError
from simulation.population.population import TextPopulation

DRAWN_WORDS = 4
_OPENING_WORDS = 3
# The opening's words are the first of the list; drawn ones are common enough to be in any list.
_FIRST_WORD = EOS + 1
_LARGEST_SPACE = 1000
_BATCH = 256


class Secrets(NamedTuple):
    """Sentences that end with ``<eos>``, as word numbers, int64, shape ``(sentences, time)``."""

    planted: Tensor
    references: Tensor


def draw_secrets(
    vocabulary_size: int, *, count: int, reference_count: int, generator: torch.Generator
) -> Secrets:
    """Draw secrets, at least one, and references; all differ in their last ``DRAWN_WORDS`` words.

    Raises:
        AuditError: If there are too few words or sentences.
    """
    first = _FIRST_WORD + _OPENING_WORDS
    last = min(vocabulary_size, first + _LARGEST_SPACE)
    if last - first < 10:
        raise AuditError(f"secrets need a vocabulary of {first + 10} words, got {vocabulary_size}")
    if count < 1 or reference_count < LEAST_REFERENCES:
        raise AuditError(
            f"exposure needs at least 1 secret and {LEAST_REFERENCES} references, "
            f"got {count} and {reference_count}"
        )
    drawn = torch.randint(first, last, (count + reference_count, DRAWN_WORDS), generator=generator)
    opening = torch.arange(_FIRST_WORD, first).expand(len(drawn), -1)
    ends = torch.full((len(drawn), 1), EOS)
    sentences = torch.cat([opening, drawn, ends], dim=1)
    return Secrets(sentences[:count], sentences[count:])


def plant(population: TextPopulation, planted: Tensor, *, repetitions: int) -> TextPopulation:
    """Return the population with each secret ``repetitions`` times in one client's text, in turn.

    ``planted`` is int64, shape ``(secrets, time)``.

    Raises:
        AuditError: If there are more secrets than clients, or no repetition.
    """
    names = list(population.clients)
    if repetitions < 1 or len(planted) > len(names):
        raise AuditError(
            f"at most one secret a client, written at least once: got {len(planted)} secrets for "
            f"{len(names)} clients and {repetitions} repetitions; lower --secrets"
        )
    clients = dict(population.clients)
    for name, secret in zip(names, planted, strict=False):
        clients[name] = torch.cat([clients[name], *[secret] * repetitions])
    return replace(population, clients=clients)


@torch.no_grad()
def sentence_losses(network: LanguageModel, sentences: Tensor) -> Tensor:
    """Return the loss on the drawn words of each sentence in nats, float64, ``(sentences,)``.

    ``network`` is in evaluation mode; ``sentences`` are int64, shape ``(sentences, time)``.
    """
    losses = []
    for batch in torch.split(sentences, _BATCH):
        features, _ = network.features(batch[:, :-1], None)
        # The words before the last, <eos>, are the drawn ones.
        logits = features[:, -DRAWN_WORDS - 1 : -1] @ network.output_weight.T + network.output_bias
        targets = batch[:, -DRAWN_WORDS - 1 : -1]
        chances = logits.double().log_softmax(dim=-1)
        losses.append(-chances.gather(-1, targets.unsqueeze(-1)).squeeze(-1).sum(dim=1))
    return torch.cat(losses)
