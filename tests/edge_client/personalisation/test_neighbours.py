import math

import pytest
import torch

from edge_client.training.local_round import LocalTrainer
from models.personal.neighbours import MissingFaissError
from models.plan.plan import Plan, TrainingSettings, VocabularySettings
from models.settings.model import TransformerLmSettings, schema_of
from models.settings.personalisation import FedTpSettings, NeighbourSettings
from models.tasks.image_classification import LabelledImages
from privacy.noise.settings import NoNoise
from tests.edge_client.personalisation.tiny_images import VIT, images, plan_of, started

WORDS = TransformerLmSettings(
    vocabulary_size=30, model_size=8, head_count=2, feedforward_size=16, context_size=12, tied=False
)


def image_plan(neighbours: NeighbourSettings | None = None) -> Plan:
    return plan_of(VIT, FedTpSettings(neighbours=neighbours))


def word_plan(neighbours: NeighbourSettings | None) -> Plan:
    return Plan(
        run="00" * 16,
        model=WORDS,
        schema_sha256=schema_of(WORDS).sha256.hex(),
        vocabulary=VocabularySettings(name="test", size=30, sha256="00" * 32),
        training=TrainingSettings(learning_rate=0.05, batch_size=7, bptt_steps=8),
        personalisation=FedTpSettings(neighbours=neighbours),
        privacy=NoNoise(),
        cohort_size=1,
        seed=3,
    )


def test_neighbours_make_up_for_a_network_that_knows_nothing() -> None:
    train, test = images([0, 2, 5], 60, seed=1), images([0, 2, 5], 90, seed=2)

    def accuracy(neighbours: NeighbourSettings | None) -> float:
        plan = image_plan(neighbours)
        return (
            LocalTrainer(plan)
            .evaluate(started(plan), test, client_name="a", training_examples=train)
            .top1_recall
        )

    # Chance is 1/3; ninety trials of a third reach 0.7 with a probability below 1e-10.
    assert accuracy(NeighbourSettings()) > 0.7 > accuracy(None)


def test_a_share_of_zero_is_the_network_alone() -> None:
    train, test = images([0, 2, 5], 20, seed=1), images([0, 2, 5], 30, seed=2)
    plain, silent = (
        LocalTrainer(plan).evaluate(started(plan), test, client_name="a", training_examples=train)
        for plan in (image_plan(), image_plan(NeighbourSettings(share=0.0)))
    )

    assert silent.top1_hits == plain.top1_hits
    assert silent.log_loss_sum == pytest.approx(plain.log_loss_sum, rel=1e-5)


def test_training_is_as_without_neighbours() -> None:
    train = images([0, 2, 5], 20, seed=1)

    with_neighbours, without = (
        LocalTrainer(plan).train(started(plan), train, round_number=1, client_name="a")
        for plan in (image_plan(NeighbourSettings()), image_plan())
    )

    assert torch.equal(with_neighbours.update, without.update)
    assert with_neighbours.personal is None


def test_batch_size_changes_no_score() -> None:
    train, test = images([0, 2, 5], 150, seed=1), images([0, 2, 5], 50, seed=2)
    plan = image_plan(NeighbourSettings())

    whole, pieces = (
        LocalTrainer(plan).evaluate(
            started(plan), test, client_name="a", training_examples=train, batch_size=size
        )
        for size in (64, 3)
    )

    assert whole.top1_hits == pieces.top1_hits
    assert whole.log_loss_sum == pytest.approx(pieces.log_loss_sum, rel=1e-5)


def test_a_smaller_capacity_draws_by_the_client_and_repeats() -> None:
    train, test = images([0, 2, 5], 60, seed=1), images([0, 2, 5], 30, seed=2)
    plan = image_plan(NeighbourSettings(capacity=0.1))

    def loss(name: str) -> float:
        return (
            LocalTrainer(plan)
            .evaluate(started(plan), test, client_name=name, training_examples=train)
            .log_loss_sum
        )

    assert loss("a") == loss("a") != loss("b")


def test_a_client_with_one_example_and_one_without_any_are_scored() -> None:
    plan = image_plan(NeighbourSettings())
    test = images([0, 2], 10, seed=2)

    def loss(known: LabelledImages | None) -> float:
        trainer = LocalTrainer(plan)
        return trainer.evaluate(
            started(plan), test, client_name="a", training_examples=known
        ).log_loss_sum

    alone = LocalTrainer(image_plan()).evaluate(started(plan), test, client_name="a").log_loss_sum
    assert loss(None) == loss(images([0], 0, seed=1)) == alone
    assert loss(images([2], 1, seed=1)) != alone


def test_repeated_words_are_remembered() -> None:
    # One sentence of nine words, over and over: the network knows nothing of it, the store all.
    sentence = torch.tensor([5, 9, 14, 7, 22, 11, 3, 28, 1])
    train, test = sentence.repeat(8), sentence.repeat(2)

    def counts(neighbours: NeighbourSettings | None) -> tuple[int, float, int]:
        plan = word_plan(neighbours)
        scored = LocalTrainer(plan).evaluate(
            started(plan), test, client_name="a", training_examples=train
        )
        return scored.top1_hits, scored.mean_log_loss, scored.token_count

    hits, loss, tokens = counts(NeighbourSettings(count=4))
    network_hits, network_loss, _ = counts(None)

    assert tokens == 18
    assert hits > 15 > network_hits
    # With every vote right the loss is at most -ln 0.6, and each word scored once.
    assert loss < -math.log(0.5) < network_loss


def test_words_scored_in_pieces_of_the_vocabulary_come_out_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = torch.randint(2, 30, (60,), generator=torch.Generator().manual_seed(1))
    plan = word_plan(NeighbourSettings())

    def loss() -> float:
        return (
            LocalTrainer(plan)
            .evaluate(started(plan), text[40:], client_name="a", training_examples=text[:40])
            .log_loss_sum
        )

    whole = loss()
    monkeypatch.setattr("models.layers.cross_entropy.CHUNK_ELEMENTS", 90)

    assert loss() == pytest.approx(whole, rel=1e-5)


def test_unknown_words_and_ends_are_no_hits_though_neighbours_hold_them() -> None:
    # <unk>, word 0, and the end, word 1, follow every word; a keyboard cannot suggest them.
    stream = torch.tensor([5, 0, 5, 1]).repeat(10)
    plan = word_plan(NeighbourSettings(count=3))

    counts = LocalTrainer(plan).evaluate(
        started(plan), stream, client_name="a", training_examples=stream
    )

    assert (counts.token_count, counts.word_count, counts.unknown_count) == (40, 30, 10)
    assert counts.top1_hits <= 20


def test_without_faiss_a_run_is_refused_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingFaissError, match=r"install sotto\[neighbours\]"):
        LocalTrainer(image_plan(NeighbourSettings()))
