"""The statistical tests have a chance of a false failure of at most 1e-6 each (five deviations)."""

import math

import pytest
import torch

from models.personal.polya_gamma import _is_kept, sample_polya_gamma

DRAWS = 200_000
# Each side of every switch inside: no tilt, a mean above the meeting point (|c| < 3.125), below it.
TILTS = [0.0, 0.5, -2.0, 3.1, 3.2, 10.0, 60.0]


def draws(tilt: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return sample_polya_gamma(torch.full((DRAWS,), tilt, dtype=torch.float64), generator)


@pytest.mark.parametrize("tilt", TILTS)
def test_mean_and_variance_are_those_of_the_distribution(tilt: float) -> None:
    c = abs(tilt)
    mean = math.tanh(c / 2) / (2 * c) if c else 1 / 4
    variance = (2 * math.tanh(c / 2) - c / math.cosh(c / 2) ** 2) / (4 * c**3) if c else 1 / 24

    drawn = draws(tilt)

    assert abs(float(drawn.mean()) - mean) < 5 * math.sqrt(variance / DRAWS)
    spread = (drawn - mean).square()
    assert abs(float(spread.mean()) - variance) < 5 * float(spread.std()) / math.sqrt(DRAWS)


@pytest.mark.slow
@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("s", [0.7, 20.0])
def test_laplace_transform_is_that_of_the_distribution(tilt: float, s: float) -> None:
    # E[e^{-s ω}] = cosh(c/2) / cosh(sqrt(c²/4 + s/2)): the whole distribution, not two moments.
    expected = math.cosh(tilt / 2) / math.cosh(math.sqrt(tilt**2 / 4 + s / 2))

    values = torch.exp(-s * draws(tilt))

    assert abs(float(values.mean()) - expected) < 5 * float(values.std()) / math.sqrt(DRAWS)


@pytest.mark.parametrize("proposal", [0.3, 0.6, 0.639, 0.641, 1.1])
def test_proposals_are_kept_as_often_as_the_series_says(proposal: float) -> None:
    # At most 0.6 % are refused, too few to be seen in the moments above: this part is asked by
    # itself. The density's two series, each over its first term, n of both signs taken together.
    decay = 2 / proposal if proposal < 0.64 else proposal * math.pi**2 / 2
    expected = sum((-1) ** n * (2 * n + 1) * math.exp(-n * (n + 1) * decay) for n in range(9))

    kept = _is_kept(
        torch.full((1_000_000,), proposal, dtype=torch.float64), torch.Generator().manual_seed(7)
    )

    deviation = math.sqrt(expected * (1 - expected) / 1_000_000)
    assert abs(float(kept.double().mean()) - expected) < 5 * deviation


def test_largest_tilts_stay_positive_and_near_their_mean() -> None:
    # At c = 1e6 the mean is 5e-7 and the deviation 1e-3 of it.
    drawn = sample_polya_gamma(torch.full((1000,), 1e6), torch.Generator().manual_seed(1))

    assert float((drawn / 5e-7 - 1).abs().max()) < 0.01


def test_draws_depend_on_the_generator_alone() -> None:
    tilts = torch.linspace(-9, 9, 60).view(3, 20)
    torch.manual_seed(1)
    one = sample_polya_gamma(tilts, torch.Generator().manual_seed(5))
    torch.manual_seed(2)

    same = sample_polya_gamma(tilts, torch.Generator().manual_seed(5))
    other = sample_polya_gamma(tilts, torch.Generator().manual_seed(6))

    assert one.shape == (3, 20)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("tilt", [math.nan, math.inf])
def test_a_tilt_that_is_no_number_is_refused(tilt: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        sample_polya_gamma(torch.tensor([1.0, tilt]), torch.Generator())
