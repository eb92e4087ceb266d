import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from models.tasks.speech_losses import (
    duration_loss,
    forward_sum_loss,
    guide,
    guided_loss,
    mel_loss,
    real_places,
    stop_loss,
)


def test_the_mel_loss_is_the_mean_over_channels_of_real_frames() -> None:
    made = torch.tensor([[[1.0, 2.0], [0.0, 0.0], [9.0, 9.0]]])
    right = torch.tensor([[[0.0, 4.0], [1.0, -1.0], [0.0, 0.0]]])

    loss = mel_loss(made, right, real_places(torch.tensor([2]), 3))

    # (1 + 2 + 1 + 1) / 4; the third frame is padding.
    assert_close(loss, torch.tensor(1.25))


def test_the_last_step_weighs_five_times_and_steps_after_it_nothing() -> None:
    logits = torch.tensor([[math.log(3), 0.0, 100.0], [-math.log(3), 0.0, math.log(3)]])

    loss = stop_loss(logits, torch.tensor([2, 3]))

    # p = 3/4 and 1/2, then 1/4, 1/2 and 3/4; the second and the fifth are last ones.
    expected = [
        -math.log(1 / 4),
        -5 * math.log(1 / 2),
        -math.log(3 / 4),
        -math.log(1 / 2),
        -5 * math.log(3 / 4),
    ]
    assert_close(loss, torch.tensor(sum(expected) / 5))


def test_the_guide_costs_what_its_formula_says() -> None:
    cost = guide(torch.tensor([4, 2]), torch.tensor([2, 1]), steps=4, text=3)

    def off(distance: float) -> float:
        return 1 - math.exp(-(distance**2) / (2 * 0.4**2))

    # Of four steps and two characters: t/T = 0, 1/4, 1/2, 3/4 and n/N = 0, 1/2.
    first = [
        [off(0), off(0.5), 0],
        [off(0.25), off(0.25), 0],
        [off(0.5), off(0), 0],
        [off(0.75), off(0.25), 0],
    ]
    second = [[off(0), 0, 0], [off(0.5), 0, 0], [0, 0, 0], [0, 0, 0]]
    assert_close(cost, torch.tensor([first, second]))
    assert off(0.25) == pytest.approx(0.17742, abs=1e-5)


def test_attention_off_the_diagonal_costs_and_padding_and_other_heads_do_not() -> None:
    attention = torch.zeros(1, 2, 3, 3)
    # Two real steps and two real characters; the first head looks off the diagonal both times.
    attention[0, 0, 0, 1] = attention[0, 0, 1, 0] = 1
    attention[0, 0, 2, 2] = 1
    attention[0, 1] = 1
    steps, text = torch.tensor([2]), torch.tensor([2])

    loss = guided_loss([attention], steps, text, head_count=1)

    # Both are half a text off: 2 * (1 - e^(-0.25 / 0.32)) over four cells.
    assert_close(loss, torch.tensor(2 * (1 - math.exp(-0.25 / 0.32)) / 4))
    two = guided_loss([attention, torch.zeros(1, 2, 3, 3)], steps, text, head_count=1)
    assert_close(two, loss / 2)


def test_the_forward_sum_is_over_every_path_through_the_text() -> None:
    weights = torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(3)).double()

    loss = forward_sum_loss(weights, torch.tensor([4]), torch.tensor([2]))

    # With the blank of weight 1/e, frames choose among blank, first and second character; those
    # that read "first, second" once blanks and repeats are gone are the paths.
    shares = torch.cat([torch.full((4, 1), -1.0).double(), weights[0]], 1).softmax(1)
    total = 0.0
    for path in itertools.product(range(3), repeat=4):
        read = [place for place, _ in itertools.groupby(path)]
        if [place for place in read if place] == [1, 2]:
            total += math.prod(float(shares[frame, place]) for frame, place in enumerate(path))
    assert float(loss) == pytest.approx(-math.log(total) / 2)


def test_a_clip_too_short_for_its_text_costs_nothing() -> None:
    weights = torch.zeros(1, 2, 4, requires_grad=True)

    loss = forward_sum_loss(weights, torch.tensor([2]), torch.tensor([4]))
    loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch

    assert float(loss.detach()) == 0
    assert weights.grad is not None
    assert not weights.grad.any()


def test_durations_cost_by_character_and_as_a_whole() -> None:
    predicted = torch.tensor([[9.0, 12.0, 0.0], [6.0, 6.0, 6.0]])
    found = torch.tensor([[6.0, 24.0, 0.0], [6.0, 6.0, 6.0]])

    loss = duration_loss(predicted, found, torch.tensor([2, 3]))

    # Half a typical duration off costs 0.5²/2, two of them 2 - 0.5; five are real. The first whole
    # is 21 for 30.
    assert float(loss) == pytest.approx((0.125 + 1.5) / 5 + math.log(30 / 21) / 2)
