"""Draw Pólya-Gamma variables exactly; they make a logistic likelihood Gaussian.

PG(1, c) is a quarter of Devroye's J*(1, c/2). A proposal is an inverse Gaussian below
``_MEETING_POINT`` and an exponential above it; it is kept with the probability that an alternating
series gives. The series' terms fall so fast that at most 6 proposals in 1,000 are refused. Its
partial sums close in from both sides, so nothing is cut off: the draws are exact up to float64.

References:
    [Polson] Polson, Scott, Windle, JASA 108, 2013, arXiv:1205.0310, section 4 and its appendix.
    [Devroye] Devroye, "On exact simulation algorithms for some distributions related to Jacobi
        theta functions", Statistics and Probability Letters 79, 2009.
"""

import math

import torch
from torch import Tensor

_MEETING_POINT = 0.64
"""Where the two forms of the density are exchanged; [Polson] finds it nearly best for every c."""


def sample_polya_gamma(tilt: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one PG(1, c) > 0 for every finite c of any shape, float64, on the generator's device.

    The mean is tanh(c/2) / (2c), 1/4 at 0. How many draws the generator gives depends on refusals.
    """
    if not bool(torch.isfinite(tilt).all()):
        raise ValueError("every tilt of a Pólya-Gamma variable must be finite")
    halves = tilt.detach().double().abs().flatten() / 2
    drawn = torch.empty_like(halves)
    open_places = torch.arange(len(halves), device=halves.device)
    while len(open_places):
        proposals = _propose(halves[open_places], generator)
        kept = _is_kept(proposals, generator)
        drawn[open_places[kept]] = proposals[kept]
        open_places = open_places[~kept]
    return (drawn / 4).view(tilt.shape)


def _propose(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw from the envelope of J*(1, z); the p and q of [Polson], appendix, as logarithms."""
    rate = z.square() / 2 + math.pi**2 / 8
    log_above = math.log(math.pi / 2) - rate.log() - rate * _MEETING_POINT
    root = math.sqrt(_MEETING_POINT)
    log_below = math.log(2) + torch.logaddexp(
        torch.special.log_ndtr(z * root - 1 / root) - z,
        torch.special.log_ndtr(-z * root - 1 / root) + z,
    )
    is_above = _uniform(z, generator) < torch.sigmoid(log_above - log_below)
    proposals = _MEETING_POINT + _exponential(z, generator) / rate
    proposals[~is_above] = _truncated_inverse_gaussian(z[~is_above], generator)
    return proposals


def _is_kept(proposals: Tensor, generator: torch.Generator) -> Tensor:
    """Decide by the alternating series; its terms are divided by the first, so none underflows."""
    decay = torch.where(
        proposals <= _MEETING_POINT, 2 / proposals, proposals * (math.pi**2 / 2)
    )  # At least 3.1: the second term is at most 0.006.
    uniform = _uniform(proposals, generator)
    partial_sum = torch.ones_like(proposals)
    kept = torch.zeros_like(proposals, dtype=torch.bool)
    is_open = torch.ones_like(kept)
    term = 0
    while bool(is_open.any()):
        term += 1
        size = (2 * term + 1) * torch.exp(-term * (term + 1) * decay)
        if term % 2:  # From below: what lies under this sum is surely kept.
            partial_sum -= size
            decided = is_open & (uniform <= partial_sum)
            kept |= decided
        else:
            partial_sum += size
            decided = is_open & (uniform > partial_sum)
        is_open &= ~decided
    return kept


def _truncated_inverse_gaussian(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw inverse Gaussians of mean 1/z and shape 1 that are below the meeting point."""
    drawn = torch.empty_like(z)
    open_places = torch.arange(len(z), device=z.device)
    while len(open_places):
        at = z[open_places]
        # A mean beyond the meeting point would have nearly every untruncated draw refused.
        from_tail = at * _MEETING_POINT < 1
        proposals = torch.where(
            from_tail, _inverse_chi_square(at, generator), _inverse_gaussian(at, generator)
        )
        chance = torch.where(from_tail, torch.exp(-at.square() * proposals / 2), 1.0)
        kept = (proposals <= _MEETING_POINT) & (_uniform(at, generator) <= chance)
        drawn[open_places[kept]] = proposals[kept]
        open_places = open_places[~kept]
    return drawn


def _inverse_chi_square(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw 1/N^2 given that it is below the meeting point; infinity stands for a refused draw."""
    first, second = _exponential(z, generator), _exponential(z, generator)
    refused = first.square() > 2 * second / _MEETING_POINT
    proposals = _MEETING_POINT / (1 + _MEETING_POINT * first).square()
    return proposals.masked_fill(refused, math.inf)


def _inverse_gaussian(z: Tensor, generator: torch.Generator) -> Tensor:
    """Draw inverse Gaussians of mean 1/z and shape 1 (Michael, Schucany and Haas, 1976)."""
    # The mean is not used where it is larger than the meeting point, and 1/0 must not be made.
    mean = 1 / z.clamp(min=1 / _MEETING_POINT)
    normal = torch.randn(z.shape, dtype=z.dtype, device=z.device, generator=generator)
    square = mean * normal.square()
    # The smaller root of a quadratic, in the form that does not cancel.
    smaller = 2 * mean / (2 + square + (4 * square + square.square()).sqrt())
    is_smaller = _uniform(z, generator) <= mean / (mean + smaller)
    return torch.where(is_smaller, smaller, mean.square() / smaller)


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)


def _exponential(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty_like(like).exponential_(generator=generator)
