import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import WordNetwork, build_network
from models.plan.plan import TrainingSettings
from models.settings.model import GruLmSettings, TransformerLmSettings, WordModelSettings, schema_of
from models.tasks.metrics import Counts
from models.tasks.next_word import NextWord
from models.tasks.registry import task_named
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.vocabulary import EOS, UNK

GRU = GruLmSettings(vocabulary_size=30, hidden_size=8)
TRANSFORMER = TransformerLmSettings(
    vocabulary_size=30, model_size=8, head_count=2, feedforward_size=16, context_size=12
)
TRAINING = TrainingSettings(learning_rate=1.0, batch_size=3, bptt_steps=5)


def network_of(settings: WordModelSettings) -> WordNetwork:
    network = build_network(settings)
    load_parameters(network, schema_of(settings), 5 * initial_parameters(settings, seed=1))
    return network


def text(tokens: int, seed: int = 0) -> Tensor:
    stream = torch.randint(2, 30, (tokens,), generator=torch.Generator().manual_seed(seed))
    stream[4::6] = EOS
    stream[7::13] = UNK
    stream[-1] = EOS
    return stream


def read_word_by_word(network: WordNetwork, stream: Tensor) -> Tensor:
    """Return the log-probabilities of all words at each place, one token after the other."""
    state, before, rows = None, EOS, []
    for token in stream.tolist():
        features, state = network.features(torch.tensor([[before]]), state)
        logits = features[0, 0] @ network.output_weight.t() + network.output_bias
        rows.append(torch.log_softmax(logits, 0))
        before = token
    return torch.stack(rows)


@torch.no_grad()
def test_perplexity_is_that_of_reading_word_by_word() -> None:
    network = network_of(GRU)
    stream = text(200)
    log_probabilities = read_word_by_word(network, stream)

    counts = NextWord().evaluate(network, [stream])

    loss = -log_probabilities.gather(1, stream.unsqueeze(1)).double().mean()
    assert counts.token_count == 200
    assert counts.perplexity == pytest.approx(math.exp(float(loss)), rel=1e-5)


@torch.no_grad()
def test_hits_are_those_of_a_strip_that_a_person_reads_word_by_word() -> None:
    network = network_of(GRU)
    network.output_bias[[UNK, EOS]] += 5.0  # Often best of all, and never on show.
    stream = text(200)
    scores = read_word_by_word(network, stream).tolist()

    counts = NextWord().evaluate(network, [stream])

    # In plain Python: a word is typed unless it is the end of a sentence; the strip shows the best
    # three of all but <unk> and <eos>; what the list does not have is typed and never on show.
    typed = first = three = unknown = 0
    for target, row in zip(stream.tolist(), scores, strict=True):
        if target == EOS:
            continue
        typed += 1
        shown = sorted((word for word in range(2, 30)), key=lambda word: -row[word])[:3]
        unknown += target == UNK
        first += target == shown[0]
        three += target in shown
    assert (counts.word_count, counts.unknown_count) == (typed, unknown)
    assert (counts.top1_hits, counts.top3_hits) == (first, three)
    assert 0 < first < three < typed < counts.token_count == 200
    assert unknown > 0


def test_a_model_that_always_ends_the_sentence_hits_nothing() -> None:
    network = build_network(GRU)  # all parameters zero
    with torch.no_grad():
        network.output_bias[EOS] = 20.0
        network.output_bias[UNK] = 10.0
    # The list's last words, for which no strip has room, and ends that the model is sure of.
    stream = torch.tensor([28, EOS, 29, UNK, EOS] * 4)

    counts = NextWord().evaluate(network, [stream])

    assert (counts.top1_recall, counts.top3_recall) == (0.0, 0.0)
    assert counts.figures(of_words=True)["unknown_words"] == pytest.approx(1 / 3)
    # e^20 of e^20 + e^10 + 28: the ends cost nothing, the rest 20 nats or 10.
    assert counts.mean_log_loss == pytest.approx((20 + 20 + 10) / 5, abs=1e-3)


@pytest.mark.parametrize("settings", [GRU, TRANSFORMER])
def test_the_batch_size_does_not_change_what_is_counted(settings: WordModelSettings) -> None:
    network = network_of(settings)
    users = [text(1500, 1), text(1, 2), text(40, 3), text(700, 4)]

    one, three, many = (NextWord().evaluate(network, users, batch_size=size) for size in (1, 3, 64))

    assert one.token_count == three.token_count == many.token_count == 2241
    assert three.perplexity == pytest.approx(one.perplexity, rel=1e-6)
    assert many.perplexity == pytest.approx(one.perplexity, rel=1e-6)
    assert one.top3_hits == three.top3_hits == many.top3_hits


def test_each_person_is_read_apart_from_the_others() -> None:
    network = network_of(GRU)
    users = [text(50, 1), text(80, 2)]

    together = NextWord().evaluate(network, users)
    apart = NextWord().evaluate(network, users[:1]) + NextWord().evaluate(network, users[1:])

    assert together.token_count == apart.token_count
    assert together.log_loss_sum == pytest.approx(apart.log_loss_sum, rel=1e-6)


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity_and_few_hits() -> None:
    network = build_network(GRU)  # all parameters zero
    stream = torch.arange(2, 30).repeat(2)

    counts = NextWord().evaluate(network, [stream])

    # Equal scores rank by number behind <unk> and <eos>: 2, 3 and 4 are suggested, and hit twice.
    assert counts.perplexity == pytest.approx(30, rel=1e-6)
    assert (counts.top1_hits, counts.top3_hits) == (2, 6)


def test_nobody_and_empty_texts_count_nothing() -> None:
    network = network_of(GRU)

    assert NextWord().evaluate(network, []) == Counts()
    assert NextWord().evaluate(network, [torch.empty(0, dtype=torch.int64)]) == Counts()


def test_the_loss_is_the_mean_over_real_tokens_and_padding_trains_nothing() -> None:
    network = network_of(GRU)
    # Seven tokens in three streams: 2, 2 and 3 long, so the last column is padded twice.
    batches = list(NextWord().batches(text(7), TRAINING, network, torch.Generator()))
    window = batches[0]
    used = window.targets >= 0

    loss, count, _ = NextWord().loss(network, window, None)
    (gradient,) = torch.autograd.grad(loss, [network.output_bias])

    features, _ = network.features(window.inputs, None)
    logits = features[used] @ network.output_weight.t() + network.output_bias
    plain = cross_entropy(logits, window.targets[used])
    assert count == 7
    assert_close(loss, plain)
    assert_close(gradient, torch.autograd.grad(plain, [network.output_bias])[0])


def test_the_state_is_carried_between_windows_and_gradients_are_not() -> None:
    network = network_of(GRU)
    first, second, *_ = NextWord().batches(text(40), TRAINING, network, torch.Generator())

    _, _, state = NextWord().loss(network, first, None)
    carried, _, _ = NextWord().loss(network, second, state)
    forgotten, _, _ = NextWord().loss(network, second, None)

    assert state is not None
    assert not state.requires_grad
    assert float(carried.detach()) != float(forgotten.detach())


def test_a_pass_starts_without_the_state_of_the_one_before() -> None:
    network = network_of(GRU)
    first = next(iter(NextWord().batches(text(40), TRAINING, network, torch.Generator())))
    old = torch.ones(1, 3, 8)

    with_old, _, _ = NextWord().loss(network, first, old)
    without, _, _ = NextWord().loss(network, first, None)

    assert torch.equal(with_old, without)


def test_windows_are_no_longer_than_the_context() -> None:
    training = TrainingSettings(learning_rate=1.0, batch_size=2, bptt_steps=100)

    windows = NextWord().batches(text(90), training, network_of(TRANSFORMER), torch.Generator())

    assert [window.inputs.shape[1] for window in windows] == [12, 12, 12, 9]


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (torch.tensor([5]), "at least 2 tokens to train on, got 1"),
        (torch.empty(0, dtype=torch.int64), "at least 2 tokens to train on, got 0"),
        (torch.tensor([UNK, EOS, UNK, EOS]), "at least one word of the vocabulary"),
        (torch.tensor([5, 30]), r"in \[0, 30\)"),
        (torch.tensor([5, -1]), r"in \[0, 30\)"),
    ],
)
def test_text_that_cannot_be_trained_on_is_refused(stream: Tensor, says: str) -> None:
    with pytest.raises(UnusableExamplesError, match=says):
        NextWord().check(stream, network_of(GRU))


@pytest.mark.parametrize("stream", [torch.zeros(2, 3, dtype=torch.int64), torch.zeros(5)])
def test_what_is_no_stream_of_numbers_is_refused(stream: Tensor) -> None:
    with pytest.raises(ValueError, match="int64 of shape"):
        NextWord().evaluate(network_of(GRU), [stream])


def test_an_unknown_task_is_refused_with_those_there_are() -> None:
    assert isinstance(task_named("next_word"), NextWord)
    with pytest.raises(
        ValueError, match=r"one of \['image_classification', .*'next_word'.*\], got 'next_wrod'"
    ):
        task_named("next_wrod")
