"""Balanced softmax and the personal head, against arithmetic on classes that score alike."""

import math
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from edge_client.personalisation.balanced_head import (
    BalancedHeadHalf,
    BalancedSoftmax,
    PersonalHead,
)
from models.plan.plan import TrainingSettings
from models.settings.model import GruLmSettings, schema_of
from models.settings.personalisation import FedRodSettings
from models.tasks.feature_task import feature_task
from models.tasks.image_classification import ImageClassification
from models.tasks.next_word import NextWord
from models.vector.named_parts import MissingPartError
from models.vector.schema import Schema, TensorSpec

TRAINING = TrainingSettings(learning_rate=0.1, batch_size=8, bptt_steps=1)


class Labels:
    """Give one feature of 2 for every label; a task of labels alone."""

    def targets(self, examples: Tensor) -> Tensor:
        return examples

    def features(self, network: Any, batch: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((len(batch), 1), 2.0), batch


class Head(nn.Module):
    def __init__(self, class_count: int) -> None:
        super().__init__()
        self.head = nn.Linear(1, class_count)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


def objective(labels: list[int], class_count: int) -> tuple[BalancedSoftmax, Tensor, Any]:
    head = {
        "personal_head.weight": torch.zeros(class_count, 1),
        "personal_head.bias": torch.zeros(class_count),
    }
    examples = torch.tensor(labels)
    softmax = BalancedSoftmax(
        cast(Any, Labels()),
        examples,
        TRAINING,
        head=PersonalHead(head, torch.device("cpu")),
        learning_rate=0.5,
    )
    return softmax, examples, cast(Any, Head(class_count))


def test_a_head_that_knows_nothing_gives_each_class_its_share() -> None:
    # Three of one class and one of the other: probabilities 3/4 and 1/4.
    softmax, batch, network = objective([0, 0, 0, 1], class_count=2)

    loss, count, _ = softmax.loss(network, batch, None)

    assert count == 4
    assert loss.item() == pytest.approx((3 * math.log(4 / 3) + math.log(4)) / 4)


def test_a_class_that_the_client_lacks_gets_no_gradient() -> None:
    softmax, batch, network = objective([0, 1], class_count=3)

    loss, _, _ = softmax.loss(network, batch, None)
    loss.backward()  # type: ignore[no-untyped-call]

    # Two classes share the probability, and the third has none: ln 2, not ln 3.
    assert loss.item() == pytest.approx(math.log(2))
    assert network.head.bias.grad.tolist() == pytest.approx([0.0, 0.0, 0.0])
    assert network.head.weight.grad[2].item() == 0


def test_a_client_of_one_class_has_nothing_to_learn_generically() -> None:
    softmax, batch, network = objective([1, 1], class_count=2)

    loss, _, _ = softmax.loss(network, batch, None)

    assert loss.item() == 0


def test_the_personal_head_learns_what_the_generic_one_lacks() -> None:
    # One example of class 0, feature 2, generic logits 0: probabilities 1/2 each. The gradient of
    # row 0 is (1/2 - 1)·2 = -1 and of its bias -1/2; the step is 0.5.
    softmax, batch, network = objective([0], class_count=2)

    softmax.loss(network, batch, None)
    softmax.step_personal_head()

    head = softmax.head.extras()
    assert head["personal_head.weight"].flatten().tolist() == pytest.approx([0.5, -0.5])
    assert head["personal_head.bias"].tolist() == pytest.approx([0.25, -0.25])
    assert network.head.weight.grad is None


def test_a_personal_head_has_the_generic_ones_shape_and_starts_at_zero() -> None:
    schema = Schema(
        (
            TensorSpec(name="body.weight", shape=(4, 4), layer="body"),
            TensorSpec(name="head.weight", shape=(3, 4), layer="head"),
        )
    )
    half = BalancedHeadHalf(FedRodSettings())

    assert [(t.name, t.shape) for t in half.extra_tensors(schema)] == [
        ("personal_head.weight", (3, 4))
    ]
    first = half.first_extras(schema, torch.ones(28))
    assert first["personal_head.weight"].tolist() == [[0.0] * 4] * 3


def test_a_model_without_a_head_and_a_task_without_classes_are_refused() -> None:
    tied = schema_of(GruLmSettings(vocabulary_size=10, hidden_size=2))
    with pytest.raises(MissingPartError, match="set tied = false"):
        BalancedHeadHalf(FedRodSettings()).extra_tensors(tied)
    with pytest.raises(ValueError, match=r'"fedrod" needs a task of few classes.*got NextWord'):
        feature_task(NextWord(), "fedrod")
    assert feature_task(ImageClassification(), "fedrod")
