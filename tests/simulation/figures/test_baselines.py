import math

import numpy as np
import pytest
import torch

from models.text.vocabulary import EOS, UNK, Vocabulary
from simulation.figures.baselines import InterpolatedBigram, Unigram, baseline_figures
from simulation.population.population import TextPopulation

A, B, C = 2, 3, 4
VOCABULARY_SIZE = 5


def stream(*tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(tokens, dtype=np.int64)


def test_a_unigram_adds_one_to_every_count() -> None:
    model = Unigram([stream(A, A, B, EOS)], VOCABULARY_SIZE)

    # Counts 0 1 2 1 0 plus one each: 1 2 3 2 1 of 9.
    assert model.probabilities.tolist() == pytest.approx([1 / 9, 2 / 9, 3 / 9, 2 / 9, 1 / 9])
    counts = model.score([stream(A, C)])
    assert counts.token_count == 2
    assert counts.log_loss_sum == pytest.approx(-math.log(3 / 9) - math.log(1 / 9))
    # The three most frequent words are A, B and C, for an end is no word: the first and the third.
    assert (counts.top1_hits, counts.top3_hits) == (1, 2)


def test_an_unknown_word_is_scored_and_never_suggested() -> None:
    model = Unigram([stream(UNK, UNK, UNK, UNK, A, EOS)], VOCABULARY_SIZE)

    counts = model.score([stream(UNK)])

    assert counts.log_loss_sum == pytest.approx(-math.log(5 / 11))
    assert counts.top3_hits == 0


def test_a_baseline_is_counted_as_a_strip_is_read() -> None:
    # What follows A: an end three times, B twice, C once. After A a strip shows B, then C.
    train = [stream(A, EOS, A, EOS, A, EOS, A, B, EOS, A, B, EOS, A, C, EOS)]
    model = InterpolatedBigram(train, train, VOCABULARY_SIZE)
    test = stream(A, C, EOS, A, UNK, EOS, A, EOS)

    counts = model.score([test])

    # A every time after an end, C once among three; <unk> is typed and missed.
    assert (counts.token_count, counts.word_count, counts.unknown_count) == (8, 5, 1)
    assert (counts.top1_hits, counts.top3_hits) == (3, 4)
    assert (counts.top1_recall, counts.top3_recall) == (3 / 5, 4 / 5)


@pytest.mark.parametrize("seed", range(3))
def test_a_bigram_is_counted_alike_in_plain_python(seed: int) -> None:
    size, draw = 9, np.random.default_rng(seed)
    train, valid, test = (draw.choice(size, count, p=_zipf(size)) for count in (300, 100, 100))
    model = InterpolatedBigram([train], [valid], size)

    counts = model.score([test])

    # The probability of any pair, as the model's own loss gives it; the rest by hand.
    def loss(*pair: int) -> float:
        return model.score([stream(*pair)]).log_loss_sum

    typed = first = three = 0
    for context, target in zip([EOS, *test.tolist()], test.tolist(), strict=False):
        if target == EOS:
            continue
        before = loss(context)
        shown = sorted(range(2, size), key=lambda word: (loss(context, word) - before, word))[:3]
        typed += 1
        first += target == shown[0]
        three += target in shown
    assert counts.word_count == typed < 100
    assert (counts.top1_hits, counts.top3_hits) == (first, three)
    assert 0 < first < three < typed


def _zipf(size: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    shares = np.reciprocal(1.0 + np.arange(size, dtype=np.float64))
    normalised: np.ndarray[tuple[int], np.dtype[np.float64]] = shares / shares.sum()
    return normalised


def test_a_bigram_mixes_what_followed_with_how_often_words_occur() -> None:
    # Training: A is followed by B twice and by C once. Validation repeats the training text a
    # hundred times, so expectation maximisation trusts the bigram.
    train = [stream(A, B, EOS, A, B, EOS, A, C, EOS)]
    model = InterpolatedBigram(train, train * 100, VOCABULARY_SIZE)

    counts = model.score([stream(A, B)])

    # P(A | <eos>) = λ·3/3 + (1-λ)·4/14 and P(B | A) = λ·2/3 + (1-λ)·3/14, λ -> near 1.
    assert counts.token_count == 2
    assert math.exp(-counts.log_loss_sum) == pytest.approx(2 / 3, rel=0.05)
    assert (counts.top1_hits, counts.top3_hits) == (2, 2)


def test_a_text_of_which_nothing_is_left_counts_for_nothing() -> None:
    train = [stream(A, B, EOS)]
    model = InterpolatedBigram([stream(), *train, stream()], train, VOCABULARY_SIZE)

    with_empty = model.score([stream(), stream(A, B), stream()])

    assert with_empty == InterpolatedBigram(train, train, VOCABULARY_SIZE).score([stream(A, B)])
    assert with_empty.token_count == 2


def test_a_context_never_seen_falls_back_to_the_unigram() -> None:
    train = [stream(A, B, EOS)]
    model = InterpolatedBigram(train, train, VOCABULARY_SIZE)

    unseen = model.score([stream(C, A)]).log_loss_sum - model.score([stream(C)]).log_loss_sum

    # C was never seen, so A after it costs what the unigram says: counts 1 2 2 2 1 of 8.
    assert unseen == pytest.approx(-math.log(2 / 8))


def test_probabilities_after_any_context_sum_to_one() -> None:
    train = [stream(A, B, EOS, B, B, C, EOS, A, UNK, EOS)]
    model = InterpolatedBigram(train, [stream(A, C, EOS)], VOCABULARY_SIZE)

    for context in range(VOCABULARY_SIZE):
        before = model.score([stream(context)]).log_loss_sum
        total = sum(
            math.exp(before - model.score([stream(context, word)]).log_loss_sum)
            for word in range(VOCABULARY_SIZE)
        )
        assert total == pytest.approx(1)


def test_a_distribution_holds_what_each_word_is_scored_with() -> None:
    train = [stream(A, B, EOS, B, B, C, EOS, A, UNK, EOS)]
    model = InterpolatedBigram(train, [stream(A, C, EOS)], VOCABULARY_SIZE)

    after = model.distribution(B)

    before = model.score([stream(B)]).log_loss_sum
    scored = [
        math.exp(before - model.score([stream(B, word)]).log_loss_sum)
        for word in range(VOCABULARY_SIZE)
    ]
    assert after == pytest.approx(scored)


def test_clients_are_scored_on_text_of_their_own() -> None:
    # Ten words each, so nine tenths of a client's text are nine words: B follows A in all of them.
    # What the tenth word of b tells, C after C, is counted once the mixture is fitted.
    train = {"a": torch.tensor([A, B] * 5), "b": torch.tensor([*[A, B] * 4, C, C])}
    population = TextPopulation(
        clients=train,
        own_test={"a": torch.tensor([A, B, A, B]), "b": torch.tensor([C, C])},
        held_out={"valid": {}, "test": {}},
        vocabulary=Vocabulary(("<unk>", "<eos>", "x", "y", "z")),
        typed=[],
    )

    figures = baseline_figures(population)["bigram"]

    # All of a's words follow as they did before; of b's, the second does, and none began with C.
    assert figures["accuracy"] == pytest.approx(5 / 6)
    assert figures["accuracy_clients_mean"] == pytest.approx((1 + 0.5) / 2)
    assert figures["test_top1_recall"] == figures["accuracy"]
    assert figures["test_perplexity"] == figures["perplexity"]
