"""Classify two sides with a Gaussian process over features (pFedGP's node).

The likelihood is logistic. Given Pólya-Gamma variables ω, one for each known point, it is Gaussian
and everything is in closed form; ω is drawn by Gibbs sampling, in chains side by side. Predictions
are differentiable in the features, with ω held constant.

Every matrix that is factorised anew is I + Ω^½ K Ω^½, whose eigenvalues are at least 1, and no 1/ω
is ever formed; K itself is factorised once, with its jitter. All of it is in float64.

References:
    [pFedGP] Achituve et al., NeurIPS 2021, arXiv:2106.15482.
    [GPML] Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 3.4.
    [Matheron] Wilson et al., ICML 2020, arXiv:2002.09309, equation 11.
"""

import math
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from models.personal.polya_gamma import sample_polya_gamma
from models.settings.gaussian_process import GaussianProcessSettings

_QUADRATURE_POINTS = 20
_QUERIES_AT_ONCE = 256  # Bounds memory; a prediction depends on its own query alone.
_MATRIX_ELEMENTS = 1 << 24  # Factorised in one call: 128 MiB.
_LEAST_VARIANCE = 1e-10  # Rounding may reach 0, where a square root has no gradient.


@dataclass(frozen=True)
class KnownPoints:
    """The points that one process conditions on.

    Attributes:
        features: Float64 of length 1 each, shape ``(known, embed)``.
        kernel: Their covariances with the jitter, shape ``(known, known)``.
        half_signs: +½ where the point is on the left side, -½ elsewhere, shape ``(known,)``.
    """

    features: Tensor
    kernel: Tensor
    half_signs: Tensor


def known_points(
    features: Tensor, is_left: Tensor, settings: GaussianProcessSettings
) -> KnownPoints:
    """Return the points that a process conditions on, one at least.

    Features have shape ``(known, embed)``, any length and float type, and carry gradients;
    ``is_left`` is bool, shape ``(known,)``.
    """
    if features.ndim != 2 or len(features) < 1 or is_left.shape != (len(features),):
        raise ValueError(
            "features must have shape (known, embed) and is_left (known,) with known >= 1, got "
            f"{tuple(features.shape)} and {tuple(is_left.shape)}"
        )
    directions = _directions(features)
    kernel = rbf_kernel(directions, directions, settings)
    jitter = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device) * settings.jitter
    return KnownPoints(directions, kernel + jitter, is_left.to(kernel.dtype) - 0.5)


def rbf_kernel(left: Tensor, right: Tensor, settings: GaussianProcessSettings) -> Tensor:
    """Return ``output_scale`` e^{-d^2 / (2 ``length_scale``^2)} for every pair.

    ``left`` is ``(m, embed)``, ``right`` is ``(n, embed)``; the result is ``(m, n)``.
    """
    squares = left.square().sum(1).unsqueeze(1) + right.square().sum(1)
    distances = (squares - 2 * left @ right.t()).clamp(min=0)
    return settings.output_scale * torch.exp(-distances / (2 * settings.length_scale**2))


@torch.no_grad()
def draw_precisions(
    known: KnownPoints, *, chain_count: int, step_count: int, generator: torch.Generator
) -> Tensor:
    """Draw the Pólya-Gamma variables ω by Gibbs sampling: float64, ``(chain_count, known)``.

    Chains start from the prior. One step draws the latent values f given ω, then ω given f. The
    generator is on the points' device, and no gradient flows into the result.

    Raises:
        ValueError: If the kernel is not positive definite.
    """
    prior_factor = _cholesky(known.kernel)
    shape = (chain_count, len(known.kernel))

    def from_prior() -> Tensor:
        noise = torch.randn(
            shape, dtype=prior_factor.dtype, device=prior_factor.device, generator=generator
        )
        return noise @ prior_factor.t()

    precisions = sample_polya_gamma(from_prior(), generator)
    for _ in range(step_count):
        latent = _latent_given(known, precisions, from_prior(), generator)
        precisions = sample_polya_gamma(latent, generator)
    return precisions


def side_probabilities(
    known: KnownPoints, precisions: Tensor, queries: Tensor, settings: GaussianProcessSettings
) -> Tensor:
    """Return the probabilities of each query's left and right side, float64, ``(queries, 2)``.

    A chain's probability of the left side is e^{E[log σ(f)]}, a lower bound of E[σ(f)] (Jensen),
    and the right side has the rest, as in the authors' code; then chains are averaged. Gradients
    flow through ``queries``, shape ``(queries, embed)``.
    """
    directions = _directions(queries)
    total = directions.new_zeros(len(directions), 2)
    for group in torch.split(precisions, _chains_at_once(known)):
        roots = group.sqrt()
        factor = _cholesky(_scaled(known, roots))
        weights = _mean_weights(known, roots, factor)
        parts = []
        for part in torch.split(directions, _QUERIES_AT_ONCE):
            cross = rbf_kernel(known.features, part, settings)
            right = roots.unsqueeze(2) * cross
            spread = torch.linalg.solve_triangular(factor, right, upper=False)
            variance = settings.output_scale - spread.square().sum(1)
            bound = _mean_log_sigmoid(weights @ cross, variance.clamp(min=_LEAST_VARIANCE))
            parts.append(torch.stack([bound.exp(), -bound.expm1()], 2).sum(0))
        total = total + torch.cat(parts)
    return total / len(precisions)


def _scaled(known: KnownPoints, roots: Tensor) -> Tensor:
    """Return I + Ω^½ K Ω^½ for each chain, shape ``(chains, known, known)``."""
    scaled = roots.unsqueeze(2) * known.kernel * roots.unsqueeze(1)
    return scaled + torch.eye(len(known.kernel), dtype=scaled.dtype, device=scaled.device)


def _chains_at_once(known: KnownPoints) -> int:
    """Return how many chains share one call; it bounds memory, and no draw depends on it."""
    return max(1, _MATRIX_ELEMENTS // known.kernel.numel())


def _latent_given(
    known: KnownPoints, precisions: Tensor, prior: Tensor, generator: torch.Generator
) -> Tensor:
    """Draw f given ω and the sides: a draw of the prior, moved by what it gets wrong ([Matheron]).

    With κ the half signs, B = I + Ω^½ K Ω^½ and ε standard normal, it is f_prior + K (κ - Ω^½ B^-1
    (Ω^½ (K κ + f_prior) + ε)).
    """
    kernel, roots = known.kernel, precisions.sqrt()
    noise = torch.randn(prior.shape, dtype=prior.dtype, device=prior.device, generator=generator)
    wrong = roots * (kernel @ known.half_signs + prior) + noise
    size = _chains_at_once(known)
    solved = torch.cat(
        [
            torch.cholesky_solve(right.unsqueeze(2), _cholesky(_scaled(known, group))).squeeze(2)
            for right, group in zip(torch.split(wrong, size), torch.split(roots, size), strict=True)
        ]
    )
    return prior + (known.half_signs - roots * solved) @ kernel


def _mean_weights(known: KnownPoints, roots: Tensor, factor: Tensor) -> Tensor:
    """Return the weights of the covariances in the posterior mean ([GPML] Eq. 3.27)."""
    right = roots * (known.kernel @ known.half_signs)
    solved = torch.cholesky_solve(right.unsqueeze(2), factor).squeeze(2)
    return known.half_signs - roots * solved


def _mean_log_sigmoid(mean: Tensor, variance: Tensor) -> Tensor:
    """Return E[log σ(f)] of Gaussians by Gauss-Hermite quadrature; any shape."""
    points, weights = numpy.polynomial.hermite.hermgauss(_QUADRATURE_POINTS)
    deviation = (2 * variance).sqrt()
    total = torch.zeros_like(mean)
    for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
        total = total + weight * logsigmoid(mean + deviation * point)
    return total / math.sqrt(math.pi)


def _directions(features: Tensor) -> Tensor:
    """Return features of length 1 in float64; one of length 0 stays where it is."""
    return normalize(features.double(), dim=1, eps=1e-6)


def _cholesky(matrix: Tensor) -> Tensor:
    factor: Tensor
    factor, failures = torch.linalg.cholesky_ex(matrix)
    if bool((failures != 0).any()):
        raise ValueError(
            "the covariances of a client's features must be positive definite; features must be "
            "finite, and a larger jitter helps"
        )
    return factor
