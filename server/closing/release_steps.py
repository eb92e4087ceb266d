"""Release parameters as multiples of one step, so that changes take few bytes to send.

Successive releases then differ by small whole numbers (`models.compression.release_delta`).
Outcomes are rounded at random, so that their mean is right and small steps survive; a run's start
is rounded to the nearest. Both come after all noise, so a guarantee is untouched.
"""

import torch
from torch import Tensor


def round_at_random(parameters: Tensor, step: float, generator: torch.Generator) -> Tensor:
    """Return each float32 as a neighbouring multiple of the step, a power of two; unbiased."""
    draws = torch.rand(len(parameters), generator=generator)
    # A division by a power of two is exact; values beyond 2^24 steps are multiples already.
    return torch.floor(parameters.double() / step + draws).mul_(step).float()


def round_to_nearest(parameters: Tensor, step: float) -> Tensor:
    """Return each float32 as the nearest multiple of the step, a power of two."""
    # The sum turns a zero below zero into the one above it.
    return (torch.round(parameters.double() / step) * step + 0.0).float()
