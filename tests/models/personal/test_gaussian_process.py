import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.personal.gaussian_process import (
    draw_precisions,
    known_points,
    rbf_kernel,
    side_probabilities,
)
from models.settings.gaussian_process import GaussianProcessSettings

SETTINGS = GaussianProcessSettings(output_scale=3.0, length_scale=0.8, jitter=0.01)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def test_kernel_falls_with_the_squared_distance() -> None:
    left, right = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])

    kernel = rbf_kernel(left, right, SETTINGS)

    # Squared distances 0 and 2: 3 and 3 e^{-2 / (2 · 0.64)}.
    assert_close(kernel, torch.tensor([[3.0, 3.0 * math.exp(-1 / 0.64)]]))


def test_only_directions_matter() -> None:
    features, queries = gaussian(6, 4), gaussian(5, 4, seed=1)
    is_left = torch.tensor([True, False, True, False, False, True])
    precisions = gaussian(3, 6, seed=2).abs()

    near = side_probabilities(
        known_points(features, is_left, SETTINGS), precisions, queries, SETTINGS
    )
    far = side_probabilities(
        known_points(7 * features, is_left, SETTINGS), precisions, 0.1 * queries, SETTINGS
    )

    assert_close(near, far)


def test_probabilities_are_those_of_the_textbook_formula() -> None:
    features, queries = gaussian(6, 4), gaussian(5, 4, seed=1)
    is_left = torch.tensor([True, False, True, False, False, True])
    precisions = gaussian(3, 6, seed=2).abs() + 0.05
    known = known_points(features, is_left, SETTINGS)

    sides = side_probabilities(known, precisions, queries, SETTINGS)

    # Regression on κ/ω with noise variance 1/ω, inverted outright, and E[log σ(f)] as a sum over a
    # fine grid of eight deviations.
    directions = queries / queries.norm(dim=1, keepdim=True)
    cross = rbf_kernel(known.features, directions, SETTINGS)
    expected = torch.zeros(5, dtype=torch.float64)
    grid = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    density = torch.exp(-grid.square() / 2) / torch.exp(-grid.square() / 2).sum()
    for omega in precisions:
        inverse = torch.linalg.inv(known.kernel + torch.diag(1 / omega))
        mean = cross.t() @ inverse @ ((is_left.double() - 0.5) / omega)
        variance = 3.0 - (cross * (inverse @ cross)).sum(0)
        latent = mean.unsqueeze(1) + variance.sqrt().unsqueeze(1) * grid
        expected += torch.exp((torch.nn.functional.logsigmoid(latent) * density).sum(1)) / 3
    assert_close(sides[:, 0], expected, rtol=1e-5, atol=1e-6)
    assert_close(sides.sum(1), torch.ones(5, dtype=torch.float64))


@pytest.mark.slow
def test_gibbs_sampling_reaches_the_posterior() -> None:
    # Two points: the posterior of f is summed over a grid, and E[ω | f] = tanh(f/2) / (2 f).
    features = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    known = known_points(features, torch.tensor([True, False]), SETTINGS)
    axis = torch.arange(-12, 12, 0.05, dtype=torch.float64) + 0.025
    grid = torch.cartesian_prod(axis, axis)
    quadratic = (grid @ torch.linalg.inv(known.kernel) * grid).sum(1)
    log_likelihood = torch.nn.functional.logsigmoid(grid * torch.tensor([1.0, -1.0])).sum(1)
    posterior = torch.softmax(log_likelihood - quadratic / 2, 0)
    expected = (posterior.unsqueeze(1) * torch.tanh(grid / 2) / (2 * grid)).sum(0)

    drawn = draw_precisions(
        known, chain_count=100_000, step_count=12, generator=torch.Generator().manual_seed(3)
    )

    # Five deviations of the mean of 100,000 chains: a false failure has a chance of 1e-6.
    deviation = drawn.std(0) / math.sqrt(100_000)
    assert bool(((drawn.mean(0) - expected).abs() < 5 * deviation).all())


def test_gradients_are_those_of_differences() -> None:
    features, queries = gaussian(4, 3).requires_grad_(), gaussian(3, 3, seed=1).requires_grad_()
    is_left = torch.tensor([True, False, True, False])
    precisions = gaussian(2, 4, seed=2).abs()

    def probabilities(features: Tensor, queries: Tensor) -> Tensor:
        known = known_points(features, is_left, SETTINGS)
        return side_probabilities(known, precisions, queries, SETTINGS)

    assert torch.autograd.gradcheck(probabilities, (features, queries))


def test_groups_of_chains_and_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_points(gaussian(9, 4), torch.arange(9) % 2 == 0, SETTINGS)
    queries = gaussian(300, 4, seed=1)

    def answer() -> Tensor:
        generator = torch.Generator().manual_seed(3)
        precisions = draw_precisions(known, chain_count=7, step_count=2, generator=generator)
        return side_probabilities(known, precisions, queries, SETTINGS)

    together = answer()
    monkeypatch.setattr("models.personal.gaussian_process._MATRIX_ELEMENTS", 2 * 81)
    monkeypatch.setattr("models.personal.gaussian_process._QUERIES_AT_ONCE", 7)

    assert_close(answer(), together)


def test_equal_points_and_opposite_answers_are_no_trouble() -> None:
    known = known_points(torch.ones(40, 3), torch.arange(40) % 2 == 0, GaussianProcessSettings())
    precisions = draw_precisions(
        known, chain_count=20, step_count=5, generator=torch.Generator().manual_seed(1)
    )

    sides = side_probabilities(known, precisions, torch.ones(1, 3), GaussianProcessSettings())

    # Twenty answers each way: nearly even, and below it by Jensen's bound.
    assert 0.35 < float(sides[0, 0]) < 0.55


def test_features_of_length_zero_are_a_place_like_any_other() -> None:
    features = torch.zeros(3, 2, requires_grad=True)
    known = known_points(features, torch.tensor([True, True, True]), SETTINGS)

    sides = side_probabilities(known, torch.full((1, 3), 0.2).double(), features, SETTINGS)
    sides[:, 0].sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    assert float(sides.detach()[:, 0].min()) > 0.5
    assert features.grad is not None
    assert bool(torch.isfinite(features.grad).all())


def test_features_that_are_not_finite_are_refused() -> None:
    known = known_points(torch.full((2, 2), math.nan), torch.tensor([True, False]), SETTINGS)

    with pytest.raises(ValueError, match="finite"):
        draw_precisions(known, chain_count=1, step_count=1, generator=torch.Generator())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("output_scale", 0.0),
        ("output_scale", math.nan),
        ("length_scale", 0.005),
        ("jitter", -1e-3),
        ("chain_count", 0),
        ("evaluation_chain_count", 0),
        ("step_count", 0),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        GaussianProcessSettings(**{name: value})  # type: ignore[arg-type]  # an int or a float


def test_no_known_point_is_refused() -> None:
    with pytest.raises(ValueError, match="known >= 1"):
        known_points(torch.zeros(0, 3), torch.zeros(0, dtype=torch.bool), SETTINGS)
