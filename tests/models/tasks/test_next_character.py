import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import (
    CharacterNetwork,
    WrongFamilyError,
    build_network,
    character_network,
)
from models.plan.plan import TrainingSettings
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.model import CharacterModelSettings, GruLmSettings, schema_of
from models.tasks.metrics import Counts
from models.tasks.next_character import UNSCORED, CharacterWindows, NextCharacter
from models.tasks.unusable_examples import UnusableExamplesError
from models.text.alphabet import UNKNOWN

LSTM = CharLstmSettings(context_size=8, hidden_size=9)
TRANSFORMER = CharTransformerSettings(
    context_size=8, model_size=8, head_count=2, head_size=5, feedforward_size=7, dropout=0.0
)
FAMILIES: list[CharacterModelSettings] = [LSTM, TRANSFORMER]
TRAINING = TrainingSettings(learning_rate=1.0, batch_size=3, bptt_steps=1)
TASK = NextCharacter()


def network_of(settings: CharacterModelSettings) -> CharacterNetwork:
    network = character_network(build_network(settings))
    load_parameters(network, schema_of(settings), 3 * initial_parameters(settings, seed=1))
    return network


def text(characters: int, seed: int = 0) -> Tensor:
    stream = torch.randint(95, (characters,), generator=torch.Generator().manual_seed(seed))
    stream[5::11] = UNKNOWN
    return stream


def one_pass(stream: Tensor, seed: int) -> list[CharacterWindows]:
    generator = torch.Generator().manual_seed(seed)
    return list(TASK.batches(stream, TRAINING, network_of(LSTM), generator))


@pytest.mark.parametrize("length", [2, 8, 9, 10, 50])
@pytest.mark.parametrize("seed", range(6))
def test_every_character_but_the_first_is_a_target_once_behind_what_precedes_it(
    length: int, seed: int
) -> None:
    stream = torch.arange(length)  # each character tells its place

    batches = one_pass(stream, seed)

    pairs = []
    for batch in batches:
        used = batch.targets != UNSCORED
        assert batch.inputs.shape[0] <= 3
        assert batch.inputs.shape[1] <= 8
        pairs += list(zip(batch.inputs[used].tolist(), batch.targets[used].tolist(), strict=True))
    assert sorted(pairs) == [(place, place + 1) for place in range(length - 1)]
    assert TASK.example_count(stream) == length - 1


def test_passes_are_cut_and_ordered_by_the_generator() -> None:
    first, again, other = (one_pass(torch.arange(60), seed) for seed in (1, 1, 2))

    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert first[0].inputs[:, 0].tolist() != other[0].inputs[:, 0].tolist()


@torch.no_grad()
@pytest.mark.parametrize("settings", FAMILIES)
@pytest.mark.parametrize("length", [2, 9, 10, 13, 14, 61])
def test_scores_are_those_of_reading_each_context_by_itself(
    settings: CharacterModelSettings, length: int
) -> None:
    network = network_of(settings).eval()
    stream = text(length)
    loss = hits = 0.0
    for place in range(1, length):
        # Windows start at multiples of 4 and are 8 long: the first that counts this target.
        start = max(0, -(-(place - 8) // 4) * 4)
        scores = network.head(network.features(stream[start:place].unsqueeze(0)))[0, -1]
        loss += float(cross_entropy(scores, stream[place]))
        scores[UNKNOWN] = -math.inf
        hits += int(stream[place]) != UNKNOWN and int(scores.argmax()) == int(stream[place])

    counts = TASK.evaluate(network, [stream])

    assert counts.token_count == length - 1
    assert counts.log_loss_sum == pytest.approx(loss, rel=1e-5)
    assert counts.top1_hits == hits


@pytest.mark.parametrize("settings", FAMILIES)
def test_scores_do_not_depend_on_the_batch_size_nor_on_who_is_scored_along(
    settings: CharacterModelSettings,
) -> None:
    network = network_of(settings)
    users = [text(200, 1), text(1, 2), text(30, 3)]

    one, many = (TASK.evaluate(network, users, batch_size=size) for size in (1, 64))
    apart = sum((TASK.evaluate(network, [user]) for user in users), start=Counts())

    assert one.token_count == many.token_count == 199 + 29
    assert many.log_loss_sum == pytest.approx(one.log_loss_sum, rel=1e-5)
    assert apart.log_loss_sum == pytest.approx(many.log_loss_sum, rel=1e-6)
    assert one.top3_hits == many.top3_hits == apart.top3_hits


def test_every_method_is_scored_on_the_same_positions() -> None:
    users = [text(100, 1), text(17, 2)]

    counts = [TASK.evaluate(network_of(settings), users) for settings in FAMILIES]

    assert [count.token_count for count in counts] == [115, 115]


def test_a_model_that_knows_nothing_has_the_alphabet_as_perplexity() -> None:
    counts = TASK.evaluate(build_network(LSTM), [text(50)])

    assert counts.perplexity == pytest.approx(100, rel=1e-6)
    assert TASK.evaluate(build_network(LSTM), [torch.empty(0, dtype=torch.int64)]) == Counts()


@pytest.mark.parametrize("settings", FAMILIES)
def test_the_loss_is_the_mean_over_real_characters(settings: CharacterModelSettings) -> None:
    network = network_of(settings).eval()
    batch = CharacterWindows(
        inputs=torch.tensor([[1, 2, 3], [4, 5, 5]]),
        targets=torch.tensor([[2, 3, 4], [5, UNSCORED, UNSCORED]]),
    )

    loss, count, state = TASK.loss(network, batch, None)

    logits = network.head(network.features(batch.inputs))
    used = torch.stack([logits[0, 0], logits[0, 1], logits[0, 2], logits[1, 0]])
    assert_close(loss, cross_entropy(used, torch.tensor([2, 3, 4, 5])))
    assert (count, state) == (4, None)


@pytest.mark.parametrize("settings", FAMILIES)
def test_a_text_of_two_characters_trains(settings: CharacterModelSettings) -> None:
    network, stream = network_of(settings).train(), torch.tensor([4, 7])
    TASK.check(stream, network)
    (batch,) = TASK.batches(stream, TRAINING, network, torch.Generator())

    loss, count, _ = TASK.loss(network, batch, None)

    assert count == 1
    assert math.isfinite(float(loss.detach()))


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (torch.tensor([5]), "at least 2 characters to train on, got 1"),
        (torch.tensor([5, 100]), r"in \[0, 100\)"),
        (torch.tensor([-1, 5]), r"in \[0, 100\)"),
        (torch.zeros(5), "int64 of shape"),
        (torch.zeros(2, 3, dtype=torch.int64), "int64 of shape"),
    ],
)
def test_text_that_cannot_be_trained_on_is_refused(stream: Tensor, says: str) -> None:
    with pytest.raises(UnusableExamplesError, match=says):
        TASK.check(stream, network_of(LSTM))


def test_a_model_of_words_is_refused() -> None:
    words = build_network(GruLmSettings(vocabulary_size=9, hidden_size=2))

    with pytest.raises(WrongFamilyError, match="next characters, got GruLm; set"):
        TASK.check(text(5), words)


@pytest.mark.parametrize("settings", FAMILIES)
def test_scored_batches_hold_every_target_once_and_in_order(
    settings: CharacterModelSettings,
) -> None:
    network, stream = network_of(settings).eval(), text(50)

    batches = TASK.scored_batches(network, stream, batch_size=3)
    targets = torch.cat([TASK.features(network, batch)[1] for batch in batches])

    assert torch.equal(targets, TASK.targets(stream))
    assert list(TASK.scored_batches(network, stream[:1], batch_size=3)) == []
