"""The cost of one Gaussian release, held against SciPy and at the ends of the scale."""

import math

import pytest
from scipy.special import log_ndtr

from privacy.accounting.one_gaussian import gaussian_delta, gaussian_epsilon


@pytest.mark.parametrize("z", [0.05, 0.3, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
def test_delta_is_that_of_the_analytic_gaussian_mechanism(z: float, epsilon: float) -> None:
    half, shift = 0.5 / z, epsilon * z
    second = math.exp(epsilon + log_ndtr(-half - shift))
    expected = math.exp(log_ndtr(half - shift)) - second

    assert gaussian_delta(z, epsilon) == pytest.approx(max(0.0, expected), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(
    ("z", "epsilon", "delta"), [(1e-6, 8.0, 1.0), (1.0, 1e300, 0.0), (1e300, 1.0, 0.0)]
)
def test_no_size_overflows(z: float, epsilon: float, delta: float) -> None:
    assert gaussian_delta(z, epsilon) == pytest.approx(delta)


@pytest.mark.parametrize("z", [0.01, 0.3, 1.0, 20.0])
def test_epsilon_is_the_least_that_has_the_delta(z: float) -> None:
    epsilon = gaussian_epsilon(z, 1e-5)

    assert gaussian_delta(z, epsilon) == pytest.approx(1e-5, rel=1e-3)
    assert gaussian_delta(z, epsilon) <= 1e-5 < gaussian_delta(z, 0.999 * epsilon)
