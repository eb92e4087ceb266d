import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.layers.speech_alignment import (
    beta_binomial,
    likeliest_durations,
    middles,
    place_scores,
)


def _noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_prior_is_the_beta_binomial_of_its_formula() -> None:
    prior = beta_binomial(torch.tensor([3, 2]), torch.tensor([3, 2]), 3, 3).exp()

    # One clip of three frames and three characters: t = 1, 2, 3 with (1, 3), (2, 2), (3, 1), and
    # P(k) = C(2, k) B(k + a, 2 - k + b) / B(a, b).
    def chance(k: int, a: int, b: int) -> float:
        def beta(x: int, y: int) -> float:
            return math.factorial(x - 1) * math.factorial(y - 1) / math.factorial(x + y - 1)

        return math.comb(2, k) * beta(k + a, 2 - k + b) / beta(a, b)

    expected = [[chance(k, t, 4 - t) for k in range(3)] for t in (1, 2, 3)]
    assert_close(prior[0], torch.tensor(expected))
    assert_close(prior[0].sum(1), torch.ones(3))
    # Of two frames and two characters: B(k + t, 1 - k + 3 - t) / B(t, 3 - t) = 2/3 and 1/3.
    assert_close(prior[1, :2, :2], torch.tensor([[2 / 3, 1 / 3], [1 / 3, 2 / 3]]))


@given(
    frames=st.integers(1, 7), text=st.integers(1, 4), seed=st.integers(0, 2**20), more=st.booleans()
)
def test_durations_are_those_of_the_best_of_all_paths(
    frames: int, text: int, seed: int, more: bool
) -> None:
    text = min(text, frames)
    weights = _noise(1, frames, text, seed=seed).double()

    def worth(ends: tuple[int, ...]) -> float:
        edges = [0, *ends, frames]
        return sum(
            float(weights[0, edges[place] : edges[place + 1], place].sum()) for place in range(text)
        )

    best = max(itertools.combinations(range(1, frames), text - 1), key=worth)
    expected = [after - before for before, after in itertools.pairwise([0, *best, frames])]
    # A longer clip beside it, and padding that would be a better path, change nothing.
    padded = torch.full((2, frames + 3, text + 2), 50.0, dtype=torch.float64)
    padded[0, :frames, :text] = weights
    counts = torch.tensor([frames, frames + 3]), torch.tensor([text, min(text + 2, frames + 3)])

    alone = likeliest_durations(weights, counts[0][:1], counts[1][:1])
    found = likeliest_durations(padded, *counts)[0, :text] if more else alone[0]

    assert found.tolist() == expected


def test_a_text_of_more_characters_than_frames_leaves_the_first_ones_out() -> None:
    durations = likeliest_durations(torch.zeros(1, 2, 4), torch.tensor([2]), torch.tensor([4]))

    assert durations.sum() == 2
    assert durations[0, -1] >= 1


def test_attention_is_drawn_to_the_middle_of_each_character() -> None:
    durations = torch.tensor([[2.0, 6.0, 4.0]])
    middle = middles(durations)
    assert middle.tolist() == [[1.0, 5.0, 10.0]]

    scores = place_scores(middle, 1, 2, 3)

    # Steps 1 and 2 of three frames have their middles at 4.5 and 7.5; the deviation is 2 frames.
    expected = [[-((time - at) ** 2) / 8 for at in (1, 5, 10)] for time in (4.5, 7.5)]
    assert_close(scores, torch.tensor([[expected]]))


@pytest.mark.parametrize("padding", [0, 3])
def test_padding_lasts_no_time(padding: int) -> None:
    weights = _noise(1, 9, 3 + padding, seed=1)

    durations = likeliest_durations(weights, torch.tensor([7]), torch.tensor([3]))

    assert durations.sum() == 7
    assert not durations[0, 3:].any()
