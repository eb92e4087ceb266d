"""Sinusoidal positions.

References:
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762, section 3.5.
"""

import torch
from torch import Tensor

LONGEST_WAVE = 10_000.0


def sinusoids(length: int, width: int) -> Tensor:
    """Return a table of positions, float32, shape ``(length, width)``; ``width`` is even.

    Position p in columns 2i and 2i + 1 is the sine and cosine of p / 10000^(2i / width).
    """
    places = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    angles = places / LONGEST_WAVE ** (pairs / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float()
