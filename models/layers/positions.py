"""Tell a Transformer where in a sequence a token stands, by sines of many wavelengths.

References:
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762, section 3.5.
"""

import torch
from torch import Tensor

LONGEST_WAVE = 10_000.0


def sinusoids(length: int, width: int) -> Tensor:
    """Return a table of positions: even columns are sines, odd ones cosines of the same angle.

    The angle of position p in columns 2i and 2i + 1 is p / 10000^(2i / width).

    Args:
        length: Positions, from 0.
        width: Columns, even.

    Returns:
        Float32, shape ``(length, width)``.
    """
    places = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    angles = places / LONGEST_WAVE ** (pairs / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float()
