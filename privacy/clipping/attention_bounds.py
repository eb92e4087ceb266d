"""Bounds of one layer's attentive aggregation at clipping norm 1.

``privacy.clipping.sensitivity`` explains. Every function takes the number of clients m and the
attention strength κ, and returns the L2 sensitivity divided by the clipping norm. Formulas are
written in e^-|κ|, so that e^κ need not fit a float; |κ| is at most ``LARGEST_STRENGTH``. Standard
library only: commands that need no tensor start fast.
"""

import heapq
import math
from functools import lru_cache

LARGEST_STRENGTH = 500.0
"""Beyond it e^-κ leaves the range of a float."""

_SEARCH_TOLERANCE = 2.0**-22
"""Relative excess of a searched maximum over the true one; never below it."""

_SMALL_STRENGTH = 0.1


def largest_share(clients: int, strength: float) -> float:
    """Return E/(E + m - 1), E = e^|κ|: the most that one client of m can weigh."""
    return 1 / (1 + (clients - 1) * math.exp(-abs(strength)))


def zero_out(clients: int, strength: float) -> float:
    """Return the bound for a client's update against zeros in its place: exact for κ >= 0."""
    if strength <= 0 or clients == 1 or _is_attained_among_zeros(clients, strength):
        return largest_share(clients, strength)
    return _one_client_between(clients, strength)


def replace_one(clients: int, strength: float) -> float:
    """Return the bound for one update against another: exact for κ >= 0."""
    return 2 * largest_share(clients, strength)


def add_remove(clients: int, strength: float) -> float:
    """Return the bound for m clients against m - 1 of them, the place gone too."""
    simple = 2 * largest_share(clients, strength)
    if strength <= 0:
        return simple
    inverse, others = math.exp(-strength), clients - 1
    root = math.sqrt((others * inverse) ** 2 + (2 - inverse) * others * inverse)
    # Sum of the others' weights, over E, at which the chord's bound is largest.
    worst_sum = (others * inverse + root) / (2 - inverse)
    return min(simple, (2 - inverse) / (-math.expm1(-strength) * (2 * worst_sum + 1)))


def flat_zero_out(clients: int, strength: float) -> float:
    """Return 2E/(m - 1 + E + sqrt(m(m - 2 + 2E))): above ``zero_out``, and good for many layers.

    For κ in [0, 1] and m at least 3 unless κ is 0.
    """
    inverse = math.exp(-strength)
    root = math.sqrt(clients * ((clients - 2) * inverse**2 + 2 * inverse))
    return 2 / ((clients - 1) * inverse + 1 + root)


def flat_replace_one(clients: int, strength: float) -> float:
    """Return twice ``flat_zero_out``: out with the one update, in with the other."""
    return 2 * flat_zero_out(clients, strength)


def flat_add_remove(clients: int, strength: float) -> float:
    """Return E/(E + m - 1) (1 + sqrt((m - 1)E/(E + m - 2))), good for many layers."""
    others = clients - 1
    # The others' mean moves by layer, so together its layers may be longer than one clip.
    spread = others * largest_share(others, strength) if others else 0.0
    return largest_share(clients, strength) * (1 + math.sqrt(spread))


def _is_attained_among_zeros(clients: int, strength: float) -> bool:
    """Return whether m - 1 >= n0(κ) = E(κ(E - 1)/(E - 1 - κ) - 1)."""
    others = clients - 1
    if strength < _SMALL_STRENGTH:
        # n0 rises from 1 at κ = 0 to 1.143 at 0.1, where the formula would still cancel digits.
        return others > 1
    inverse = math.exp(-strength)
    rise = -math.expm1(-strength)
    return others * inverse >= strength * rise / (rise - strength * inverse) - 1


@lru_cache
def _one_client_between(clients: int, strength: float) -> float:
    """Return the maximum over t in [0, κ] of what one other client of norm t adds.

    That is (1/κ) [κE + (E - 1) t e^t/(n + e^t)] / (E + n - 1 + e^t). Above and below the line it
    rises in t, so on an interval it is at most the top at the right end over the bottom at the
    left: intervals are halved, the most promising first, until none can hold more than what was
    found.
    """
    inverse, others = math.exp(-strength), clients - 1

    def above(t: float) -> float:
        own = math.exp(t - strength)
        return 1 - math.expm1(-strength) * (t / strength) * own / (others * inverse + own)

    def below(t: float) -> float:
        return 1 + (others - 1) * inverse + math.exp(t - strength)

    found = above(0.0) / below(0.0)
    intervals = [(-above(strength) / below(0.0), 0.0, strength)]
    while -intervals[0][0] > found * (1 + _SEARCH_TOLERANCE):
        _, left, right = heapq.heappop(intervals)
        middle = (left + right) / 2
        found = max(found, above(middle) / below(middle))
        heapq.heappush(intervals, (-above(middle) / below(left), left, middle))
        heapq.heappush(intervals, (-above(right) / below(middle), middle, right))
    return -intervals[0][0]
