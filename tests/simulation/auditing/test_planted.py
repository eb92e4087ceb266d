import math

import pytest
import torch
from torch import Tensor

from models.text.vocabulary import EOS
from privacy.auditing.scores import AuditError
from simulation.auditing.planted import DRAWN_WORDS, draw_secrets, plant, sentence_losses
from simulation.population.population import TextPopulation

WORDS = 50


def drawn(count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return draw_secrets(WORDS, count=count, reference_count=100, generator=generator).planted


def test_secrets_are_sentences_that_differ_in_their_last_words() -> None:
    secrets = draw_secrets(
        WORDS, count=3, reference_count=200, generator=torch.Generator().manual_seed(1)
    )

    sentences = torch.cat([secrets.planted, secrets.references])
    assert (len(secrets.planted), len(secrets.references)) == (3, 200)
    assert torch.equal(sentences[:, :3], torch.tensor([[2, 3, 4]]).expand(203, -1))
    assert sentences[:, -1].eq(EOS).all()
    words = sentences[:, 3:-1]
    assert words.shape[1] == DRAWN_WORDS
    # 812 draws from 45 words: each of them comes with a chance of 1 - 5e-7.
    assert sorted(set(words.flatten().tolist())) == list(range(5, WORDS))


def test_each_secret_is_in_one_clients_text(population: TextPopulation) -> None:
    planted = plant(population, drawn(2), repetitions=3)

    first, second, third = list(population.clients)[:3]
    for name, secret in zip((first, second), drawn(2), strict=True):
        assert torch.equal(planted.clients[name][: -3 * 8], population.clients[name])
        assert torch.equal(planted.clients[name][-3 * 8 :], secret.repeat(3))
    assert planted.clients[third] is population.clients[third]
    assert population.clients[first].shape == (70,)


def test_the_loss_is_that_of_the_drawn_words() -> None:
    class AlwaysTheSame:
        """Gives word 7 three times the chance of every other word, whatever was read."""

        context_size: int | None = None
        output_weight = torch.zeros(WORDS, 1)
        output_bias = torch.zeros(WORDS).index_fill(0, torch.tensor(7), math.log(3))

        def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
            return torch.zeros(*tokens.shape, 1), state

        def initialise(self, generator: torch.Generator) -> None:
            raise NotImplementedError

    sentences = torch.tensor([[2, 3, 4, 7, 7, 7, 9, EOS], [2, 3, 4, 9, 9, 9, 9, EOS]])

    losses = sentence_losses(AlwaysTheSame(), sentences)

    # Chances 3/52 and 1/52.
    assert losses.tolist() == pytest.approx(
        [4 * math.log(52) - 3 * math.log(3), 4 * math.log(52)], rel=1e-6
    )


def test_too_few_words_sentences_or_clients_are_refused(population: TextPopulation) -> None:
    generator = torch.Generator()

    with pytest.raises(AuditError, match="a vocabulary of 15 words, got 14"):
        draw_secrets(14, count=1, reference_count=100, generator=generator)
    with pytest.raises(AuditError, match="at least 1 secret and 100 references, got 0 and 99"):
        draw_secrets(WORDS, count=0, reference_count=99, generator=generator)
    with pytest.raises(AuditError, match="got 7 secrets for 6 clients"):
        plant(population, drawn(7), repetitions=1)
