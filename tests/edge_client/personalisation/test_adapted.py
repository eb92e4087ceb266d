"""A device keeps its own model only if its newest text agrees; the loss is (body + head - x)²/2."""

from collections.abc import Mapping

import msgspec
import pytest
import torch
from torch import Tensor

from edge_client.personalisation.adapted import AdaptedHalf, Comparison, comparison_of
from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted, NewClientFit
from models.networks.flat_parameters import initial_parameters
from models.plan.roles import check_task
from models.settings.hypernetwork import EmbeddingFitSettings
from models.settings.personalisation import AdaptedSettings
from tests.edge_client.personalisation.tiny_client import hits, train
from tests.edge_client.training_plan import MODEL, make_plan

OLDER, NEWEST = 256, 64


def test_a_device_keeps_the_epoch_that_does_best_on_its_newest_text() -> None:
    # Older text wants 4, newest 2. From (0, 0) at step 0.25 each number moves by a quarter of what
    # is missing: the sum is 0, 2, 3, so the newest text's loss is 2, 0, 1/2.
    half = AdaptedHalf(AdaptedSettings(epochs=4, learning_rate=0.25))
    examples = [4.0] * OLDER + [2.0] * NEWEST

    learnt, held = train(half, examples=examples, learning_rate=0.1)

    assert comparison_of(learnt.extras) == Comparison(1, 2.0, 0.0, NEWEST)
    assert float(learnt.extras["own.body"] + learnt.extras["own.head"]) == pytest.approx(2.0)
    # What is sent saw all of the text, whose mean is 3.6, at the round's step.
    assert held == pytest.approx({"body": 0.36, "head": 0.36})
    assert hits(half, 2.0, body=9.0, head=0.0, extras=_numbers(learnt.extras)) == 1


def test_a_device_whose_own_model_does_worse_keeps_everyones() -> None:
    # The newest text wants what everyone's model says, the older something else.
    half = AdaptedHalf(AdaptedSettings(learning_rate=0.25))
    examples = [4.0] * OLDER + [1.0] * NEWEST

    learnt, _ = train(half, body=1.0, examples=examples, learning_rate=0.1)

    compared = comparison_of(learnt.extras)
    # One epoch moves the sum from 1 to 2.5.
    assert compared == Comparison(0, 0.0, 1.125, NEWEST)
    assert "everyone's model is no worse" in compared.in_words()
    # It predicts by the newest model of everyone's, not by that of the day it compared.
    assert hits(half, 7.0, body=7.0, head=0.0, extras=_numbers(learnt.extras)) == 1


def test_a_device_with_too_little_text_keeps_everyones() -> None:
    learnt, _ = train(
        AdaptedHalf(AdaptedSettings()), examples=[4.0] * (OLDER + NEWEST - 5), learning_rate=0.1
    )

    assert comparison_of(learnt.extras) == Comparison()
    assert "for want of data" in comparison_of(learnt.extras).in_words()


def test_nobody_adapts_before_the_first_round_that_says_so() -> None:
    half = AdaptedHalf(AdaptedSettings(learning_rate=0.25, first_round=3))
    examples = [4.0] * OLDER + [3.0] * NEWEST

    kept = []
    for number in (2, 3):
        learnt, held = train(half, examples=examples, learning_rate=0.1, round_number=number)
        kept.append(comparison_of(learnt.extras))
        # A round trains and sends whatever comes of it: the mean of all examples is 3.8.
        assert held == pytest.approx({"body": 0.38, "head": 0.38})

    assert kept[0] == Comparison()
    assert "first_round" in kept[0].in_words()
    # The first epoch moves the sum from 0 to 2, the second to 3.
    assert kept[1] == Comparison(2, 4.5, 0.0, NEWEST)


def test_a_model_that_diverges_is_not_kept() -> None:
    half = AdaptedHalf(AdaptedSettings(learning_rate=1e38))

    learnt, _ = train(half, examples=[4.0] * (OLDER + NEWEST), learning_rate=0.1)

    assert not comparison_of(learnt.extras).keeps_own
    assert all(bool(tensor.isfinite().all()) for tensor in learnt.extras.values())


def test_only_text_and_clips_have_a_newest_part() -> None:
    check_task(AdaptedSettings(), "next_word")
    check_task(AdaptedSettings(), "speech")
    with pytest.raises(ValueError, match=r'needs task = .* got "image_classification"'):
        check_task(AdaptedSettings(), "image_classification")
    with pytest.raises(msgspec.ValidationError, match="epochs must be >= 1, got 0"):
        msgspec.convert({"method": "adapted", "epochs": 0}, AdaptedSettings)


def _numbers(extras: Mapping[str, Tensor]) -> dict[str, float | list[float]]:
    return {name: value.tolist() for name, value in extras.items()}


def test_a_late_device_adapts_the_newest_model_in_one_fit() -> None:
    # A text that repeats itself: whatever is learnt of its older part holds for the newest.
    plan = msgspec.structs.replace(make_plan(), personalisation=AdaptedSettings(epochs=2))
    text = torch.tensor([2, 3, 4, 1] * 80)
    shared = initial_parameters(MODEL, 3)
    fitted: list[Fitted] = []

    NewClientFit(plan).fit(
        shared,
        text,
        client_name="device-0001",
        settings=EmbeddingFitSettings(),
        after_epoch=lambda _, model: fitted.append(model),
    )

    before, after = fitted
    trainer = LocalTrainer(plan)
    losses = [
        trainer.evaluate(
            model.parameters, text[256:], client_name="device-0001", personal=model.personal
        ).mean_log_loss
        for model in fitted
    ]
    compared = comparison_of(after.personal.extras)
    assert not comparison_of(before.personal.extras).keeps_own
    assert compared.target_count == 64  # The newest fifth of 320.
    assert losses == pytest.approx([compared.shared_loss, compared.own_loss])
    assert compared.own_loss < compared.shared_loss
    assert torch.equal(after.parameters, shared)
