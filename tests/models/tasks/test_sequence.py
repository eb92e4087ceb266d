import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import WrongFamilyError, build_network, sequence_network
from models.networks.seq2seq import BEGIN, END, PADDING, Seq2Seq
from models.plan.plan import TrainingSettings
from models.settings.model import GruLmSettings, schema_of
from models.settings.seq2seq import Seq2SeqSettings
from models.tasks.metrics import Counts
from models.tasks.sequence import Rule, SequencePairs, Sequences, draw_pairs
from models.tasks.unusable_examples import UnusableExamplesError

SETTINGS = Seq2SeqSettings(
    symbol_count=11,
    context_size=7,
    model_size=32,
    head_count=4,
    encoder_layer_count=1,
    decoder_layer_count=1,
    feedforward_size=64,
    dropout=0.0,
)
TASK = Sequences()


def network_of(settings: Seq2SeqSettings) -> Seq2Seq:
    network = sequence_network(build_network(settings))
    load_parameters(network, schema_of(settings), initial_parameters(settings, seed=1))
    return network


def pairs(rule: Rule, count: int, seed: int = 0) -> SequencePairs:
    generator = torch.Generator().manual_seed(seed)
    return draw_pairs(rule, count, symbol_count=11, lengths=(1, 6), generator=generator)


def content(row: Tensor) -> list[int]:
    return [int(symbol) for symbol in row if symbol != PADDING]


def test_targets_follow_from_sources_by_their_rule() -> None:
    copies, backwards = pairs("copy", 200), pairs("reverse", 200)
    translated, elsewhere = pairs("translate", 200), pairs("translate", 200, seed=1)

    dictionary: dict[int, int] = {}
    for drawn in (translated, elsewhere):
        for source, target in zip(drawn.sources, drawn.targets, strict=True):
            for word, other in zip(content(source), reversed(content(target)), strict=True):
                assert dictionary.setdefault(word, other) == other

    assert torch.equal(copies.sources, copies.targets)
    for source, target in zip(backwards.sources, backwards.targets, strict=True):
        assert content(target) == content(source)[::-1]
        assert not target[len(content(source)) :].any()
    # One dictionary for every draw, each word has one translation, and it is no copy.
    assert sorted(dictionary) == sorted(dictionary.values()) == list(range(3, 11))
    assert any(word != other for word, other in dictionary.items())


def test_sequences_are_drawn_of_all_lengths_and_symbols_by_the_generator() -> None:
    drawn, again, other = pairs("copy", 300), pairs("copy", 300), pairs("copy", 300, seed=1)
    lengths = {len(content(row)) for row in drawn.sources}

    assert lengths == {1, 2, 3, 4, 5, 6}
    assert set(drawn.sources.flatten().tolist()) == {PADDING, *range(3, 11)}
    assert torch.equal(drawn.sources, again.sources)
    assert not torch.equal(drawn.sources, other.sources)
    with pytest.raises(ValueError, match=r"symbol_count 3 and lengths \(1, 2\)"):
        draw_pairs("copy", 1, symbol_count=3, lengths=(1, 2), generator=torch.Generator())


def test_the_decoder_reads_begin_and_the_target_and_answers_with_its_end() -> None:
    network = network_of(SETTINGS).eval()
    batch = SequencePairs(torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[5, 4], [7, 0]]))

    loss, count, state = TASK.loss(network, batch, None)

    first = network.head(network.features(batch.sources[:1], torch.tensor([[BEGIN, 5, 4]])))
    second = network.head(network.features(batch.sources[1:], torch.tensor([[BEGIN, 7]])))
    logits = torch.cat([first[0], second[0]])
    assert_close(loss, cross_entropy(logits, torch.tensor([5, 4, END, 7, END])))
    assert (count, state) == (5, None)
    assert TASK.example_count(batch) == 5


def test_a_pass_holds_every_pair_once_in_an_order_of_the_generator() -> None:
    drawn = pairs("reverse", 20)
    training = TrainingSettings(learning_rate=1.0, batch_size=8, bptt_steps=1)

    batches = list(TASK.batches(drawn, training, network_of(SETTINGS), torch.Generator()))

    seen = torch.cat([torch.cat([batch.sources, batch.targets], 1) for batch in batches])
    given = torch.cat([drawn.sources, drawn.targets], 1)
    assert [len(batch) for batch in batches] == [8, 8, 4]
    assert sorted(seen.tolist()) == sorted(given.tolist())
    assert not torch.equal(seen, given)


def test_scores_do_not_depend_on_the_batch_size_nor_on_who_is_scored_along() -> None:
    network = network_of(SETTINGS)
    users = [pairs("copy", 30, 1), pairs("copy", 1, 2)]

    one, many = (TASK.evaluate(network, users, batch_size=size) for size in (1, 64))
    apart = sum((TASK.evaluate(network, [user]) for user in users), start=Counts())

    assert one.token_count == many.token_count == sum(map(TASK.example_count, users))
    assert many.log_loss_sum == pytest.approx(one.log_loss_sum, rel=1e-5)
    assert apart.log_loss_sum == pytest.approx(many.log_loss_sum, rel=1e-6)
    assert one.top1_hits == many.top1_hits
    assert TASK.evaluate(build_network(SETTINGS), users).perplexity == pytest.approx(11)


# To translate is to reverse and to look words up.
@pytest.mark.slow
@pytest.mark.parametrize("rule", [pytest.param("copy", marks=pytest.mark.papers), "translate"])
def test_a_tiny_transformer_learns_to_write_unseen_sequences_exactly(rule: Rule) -> None:
    network = network_of(SETTINGS).train()
    optimiser = torch.optim.Adam(network.parameters())
    generator = torch.Generator().manual_seed(7)

    def draw(count: int) -> SequencePairs:
        return draw_pairs(rule, count, symbol_count=11, lengths=(1, 5), generator=generator)

    for step in range(300):
        optimiser.param_groups[0]["lr"] = 0.008 * (1 - step / 300)
        batch = draw(64)
        loss, _, _ = TASK.loss(network, batch, None)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()

    unseen = draw(500)
    counts = TASK.evaluate(network, [unseen[:300], unseen[300:]])
    assert counts.accuracy > 0.97
    # A target that is hit symbol by symbol is what the likeliest symbols write by themselves.
    assert counts.sequence_count == 500
    assert counts.exact_matches >= 475
    assert TASK.evaluate(network_of(SETTINGS), [unseen]).exact_matches <= 25


def test_a_pair_with_one_target_missed_is_no_exact_match() -> None:
    network = network_of(SETTINGS)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.zero_()[END] = 1.0
    # Always the end: right for the empty target alone, and for one target in each of the others.
    drawn = SequencePairs(torch.full((3, 2), 3), torch.tensor([[0, 0], [4, 0], [4, 5]]))

    counts = TASK.evaluate(network, [drawn])

    assert (counts.token_count, counts.top1_hits) == (6, 3)
    assert (counts.sequence_count, counts.exact_matches) == (3, 1)


def test_one_pair_trains() -> None:
    network = network_of(SETTINGS).train()
    drawn = SequencePairs(torch.tensor([[3]]), torch.empty(1, 0, dtype=torch.int64))
    TASK.check(drawn, network)

    loss, count, _ = TASK.loss(network, drawn, None)

    assert count == 1
    assert math.isfinite(float(loss.detach()))


GOOD = torch.tensor([[3, 4, 0], [5, 0, 0]])


@pytest.mark.parametrize(
    ("sources", "targets", "says"),
    [
        (GOOD[:0], GOOD[:0], "at least 1 pair to train on, got 0"),
        (GOOD, GOOD[:1], "targets must be int64 of shape .*as many as sources"),
        (GOOD.float(), GOOD, "sources must be int64"),
        (GOOD, torch.zeros(2, 7, dtype=torch.int64), "targets must have at most 6 symbols, got 7"),
        (torch.ones(2, 8, dtype=torch.int64), GOOD, "sources must have at most 7 symbols, got 8"),
        (GOOD + 8, GOOD, r"symbols of sources must be in \[3, 11\), or 0"),
        (GOOD, torch.tensor([[END, 0], [3, 0]]), r"symbols of targets must be in \[3, 11\)"),
        (GOOD, torch.tensor([[0, 3], [3, 0]]), "padding of targets must stand at the end"),
        (torch.tensor([[3, 0], [0, 0]]), GOOD, "every source must have at least 1 symbol"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused(
    sources: Tensor, targets: Tensor, says: str
) -> None:
    with pytest.raises(UnusableExamplesError, match=says):
        TASK.check(SequencePairs(sources, targets), network_of(SETTINGS))


def test_a_model_of_words_is_refused() -> None:
    words = build_network(GruLmSettings(vocabulary_size=9, hidden_size=2))

    with pytest.raises(WrongFamilyError, match="of sequences, got GruLm; set"):
        TASK.check(pairs("copy", 2), words)
