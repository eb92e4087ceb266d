"""Coins are independent, of the right chance, and follow from the key alone."""

import numpy as np
import pytest

from privacy.example_level.sampling import poisson_sample
from privacy.noise.secure_gaussian import SystemKeys

KEY = bytes(32)


@pytest.mark.parametrize("sampling_rate", [0.01, 0.25, 0.9])
def test_each_example_is_drawn_with_the_chance_that_was_asked_for(sampling_rate: float) -> None:
    count = 400_000

    drawn = poisson_sample(count, sampling_rate, SystemKeys().draw("test"))

    # Six and a half standard deviations: a false failure once in ten billion runs.
    spread = (count * sampling_rate * (1 - sampling_rate)) ** 0.5
    assert abs(len(drawn) - count * sampling_rate) < 6.5 * spread
    assert np.all(np.diff(drawn) > 0)


def test_the_number_drawn_varies_as_coins_do() -> None:
    sizes = [len(poisson_sample(100, 0.5, bytes([key]) * 32)) for key in range(200)]

    # 100 coins: variance 25. A fixed batch size would have none.
    assert 15 < np.var(sizes) < 40


def test_everybody_is_drawn_at_rate_one() -> None:
    assert poisson_sample(5, 1.0, KEY).tolist() == [0, 1, 2, 3, 4]


def test_nobody_is_drawn_from_nothing() -> None:
    assert len(poisson_sample(0, 0.5, KEY)) == 0


def test_the_same_key_draws_the_same_and_another_does_not() -> None:
    drawn = poisson_sample(1000, 0.5, KEY)

    assert np.array_equal(drawn, poisson_sample(1000, 0.5, KEY))
    assert not np.array_equal(drawn, poisson_sample(1000, 0.5, bytes([1] * 32)))
    # One example more leaves the others' coins alone.
    assert np.array_equal(drawn, [n for n in poisson_sample(1001, 0.5, KEY) if n < 1000])
