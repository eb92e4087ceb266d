"""Measure how well a voice's attention reads its text from start to end.

A voice looks at the text from left to right, at nearly the same speed throughout, so its attention
is a diagonal line; measured is how much of it lies near the diagonal.

References:
    [GuidedAttention] Tachibana, Uenoyama, Aihara, ICASSP 2018, arXiv:1710.08969: the diagonal.
"""

import torch
from torch import Tensor

BAND = 0.2
"""How far from the diagonal is near, as a share of the text."""

_LEAST = 3


def diagonality(attention: Tensor) -> float:
    """Return how much more of the attention is near the diagonal than if it were uniform.

    Step t of T looks at character n of N. The pair is near the diagonal where |(n + ½)/N - (t +
    ½)/T| <= 0.2, both counted from 0. With M the mean over steps of the attention that is near, and
    U the share of all pairs that are, diagonality is (M - U)/(1 - U): 1 where nothing lies far off,
    0 for uniform attention, negative where it is worse.

    By hand: 4 steps over 4 characters have their four equal places near, U = 4/16. Looking at
    character t in step t gives (1 - ¼)/(1 - ¼) = 1, looking alike at all four (¼ - ¼)/¾ = 0, and
    reading backwards (0 - ¼)/¾ = -⅓.

    ``attention`` has rows that add up to 1, shape ``(steps, text)``, three or more of each.
    """
    near = _near(attention)
    for_all = float(near.double().mean())
    found = float(torch.where(near, attention.double(), 0).sum(1).mean())
    return (found - for_all) / (1 - for_all)


def straightest(attentions: Tensor) -> int:
    """Return which head's attention, ``(heads, steps, text)``, is most diagonal."""
    if not len(attentions):
        raise ValueError("attention must have a head, got none")
    return max(range(len(attentions)), key=lambda head: diagonality(attentions[head]))


def _near(attention: Tensor) -> Tensor:
    if attention.ndim != 2 or min(attention.shape) < _LEAST:
        raise ValueError(
            f"attention must have {_LEAST} steps and {_LEAST} characters at least, got shape "
            f"{tuple(attention.shape)}"
        )
    sums = attention.double().sum(1)
    is_distribution = ((sums - 1).abs() < 1e-3) & (attention >= 0).all(1)
    if not bool(is_distribution.all()):
        raise ValueError(
            f"attention must be a distribution in each step, got {int((~is_distribution).sum())} "
            "steps where it is not"
        )
    steps, text = (
        (torch.arange(count, dtype=torch.float64) + 0.5) / count for count in attention.shape
    )
    # The slack keeps pairs at 0.2 exactly on one side of it, whatever their quotients round to.
    return (text - steps[:, None]).abs() <= BAND + 1e-9
