import math

import pytest
import torch
from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from models.settings.gaussian_process import GaussianProcessSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.personalisation import PFedGpSettings
from models.tasks.image_classification import LabelledImages
from tests.edge_client.personalisation.tiny_images import CONVNET, VIT, images, plan_of, started

METHOD = PFedGpSettings(
    gaussian_process=GaussianProcessSettings(chain_count=4, evaluation_chain_count=6),
    inner_steps=2,
)


@pytest.mark.slow
@pytest.mark.parametrize("model", [CONVNET, VIT])
def test_rounds_of_training_predict_better_than_chance_and_than_before(
    model: ModelSettings,
) -> None:
    plan = plan_of(model, METHOD)
    trainer = LocalTrainer(plan)
    train, test = images([0, 2, 5], 36, seed=1), images([0, 2, 5], 90, seed=2)
    parameters = started(plan)

    def accuracy(parameters: Tensor) -> float:
        counts = trainer.evaluate(parameters, test, client_name="a", training_examples=train)
        return counts.top1_recall

    before = accuracy(parameters)
    losses = []
    for round_number in range(1, 16):
        result = trainer.train(parameters, train, round_number=round_number, client_name="a")
        parameters = parameters + result.update
        losses.append(result.mean_loss)

    # Chance is 1/3; ninety trials of a third reach 0.7 with a probability below 1e-10.
    assert accuracy(parameters) > max(0.7, before)
    assert sum(losses[-3:]) < sum(losses[:3])


def test_every_tensor_learns_and_is_sent() -> None:
    plan = plan_of(CONVNET, METHOD)

    result = LocalTrainer(plan).train(
        started(plan), images([1, 4], 20, seed=1), round_number=1, client_name="a"
    )

    schema = schema_of(CONVNET)
    moved = {
        spec.name: bool(result.update[schema.slices[spec.name]].any()) for spec in schema.tensors
    }
    assert all(moved.values()), moved
    assert result.personal is None
    assert result.example_count == 20


def test_inner_steps_are_taken_on_the_whole_data() -> None:
    # One example a class cannot be predicted from another: the gradient is zero, and a step is
    # weight decay alone. Two steps with momentum 0.9 shrink by 1 - λη, then by the sum of both.
    plan = plan_of(CONVNET, METHOD)

    result = LocalTrainer(plan).train(
        started(plan), images([0, 1, 2], 3, seed=1), round_number=1, client_name="a"
    )

    rate, decay = 0.05, 1e-3
    first = 1 - rate * decay
    second = first - rate * (0.9 * decay + decay * first)
    expected = (second - 1) * started(plan)
    torch.testing.assert_close(result.update, expected, rtol=1e-2, atol=1e-7)
    assert result.mean_loss == 0


def test_draws_depend_on_seed_client_and_round_alone() -> None:
    plan = plan_of(CONVNET, METHOD)
    train = images([0, 2, 5], 18, seed=1)

    def update(name: str, round_number: int) -> Tensor:
        torch.manual_seed(round_number)
        trainer = LocalTrainer(plan)
        trainer.train(started(plan), images([1, 3], 8, seed=5), round_number=9, client_name="z")
        return trainer.train(
            started(plan), train, round_number=round_number, client_name=name
        ).update

    assert torch.equal(update("a", 1), update("a", 1))
    assert not torch.equal(update("a", 1), update("b", 1))
    assert not torch.equal(update("a", 1), update("a", 2))


def test_batch_size_changes_no_score() -> None:
    plan = plan_of(CONVNET, METHOD)
    trainer = LocalTrainer(plan)
    train, test = images([0, 2, 5], 36, seed=1), images([0, 2, 5], 50, seed=2)

    whole, pieces = (
        trainer.evaluate(
            started(plan), test, client_name="a", training_examples=train, batch_size=size
        )
        for size in (64, 3)
    )

    assert whole.top1_hits == pieces.top1_hits
    assert whole.token_count == pieces.token_count == 50
    assert whole.log_loss_sum == pytest.approx(pieces.log_loss_sum, rel=1e-5)


def test_a_client_with_one_class_predicts_it_and_keeps_its_losses_finite() -> None:
    plan = plan_of(CONVNET, METHOD)

    counts = LocalTrainer(plan).evaluate(
        started(plan),
        LabelledImages(images([2], 3, seed=1).pixels, torch.tensor([2, 2, 4])),
        client_name="a",
        training_examples=images([2], 5, seed=2),
    )

    # A class that the client never had gets a millionth of a guess among six.
    assert counts.top1_hits == 2
    assert counts.log_loss_sum == pytest.approx(-math.log(1e-6 / 6), rel=1e-4)


def test_a_client_without_training_examples_guesses() -> None:
    plan = plan_of(CONVNET, METHOD)
    nothing = images([0], 0, seed=1)

    for known in (None, nothing):
        counts = LocalTrainer(plan).evaluate(
            started(plan), images([3], 4, seed=1), client_name="a", training_examples=known
        )

        assert counts.log_loss_sum == pytest.approx(4 * math.log(6), rel=1e-6)


def test_an_empty_test_split_counts_nothing() -> None:
    plan = plan_of(CONVNET, METHOD)

    counts = LocalTrainer(plan).evaluate(
        started(plan),
        images([0], 0, seed=1),
        client_name="a",
        training_examples=images([0, 1], 6, seed=1),
    )

    assert counts.token_count == 0
