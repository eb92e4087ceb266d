"""Release parameters as multiples of one step, so that what changed takes few bytes to tell.

Two releases in a row differ in nearly every bit of nearly every float32. Multiples of a step
differ by small whole numbers, most of them near zero (`models.compression.release_delta`).
Outcomes are rounded at random, so that their mean is right and small steps are not lost; a run's
start is rounded to the nearest. Both come after all noise: a guarantee is untouched.
"""

import torch
from torch import Tensor


def round_at_random(parameters: Tensor, step: float, generator: torch.Generator) -> Tensor:
    """Return each float32 as one of the two multiples of the step beside it, right in the mean.

    The step is a power of two.
    """
    draws = torch.rand(len(parameters), generator=generator)
    # A division by a power of two is exact; values beyond 2^24 steps are multiples already.
    return torch.floor(parameters.double() / step + draws).mul_(step).float()


def round_to_nearest(parameters: Tensor, step: float) -> Tensor:
    """Return each float32 as the nearest multiple of the step, a power of two."""
    # The sum turns a zero below zero into the one above it.
    return (torch.round(parameters.double() / step) * step + 0.0).float()
