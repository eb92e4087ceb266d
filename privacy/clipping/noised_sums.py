"""Bound how far one person moves two sums that are noised apart and divided afterwards.

A round sums messages and adds noise to the sums; nobody needs to know how many there are. Person
k's message has, for each of the L units of weighting (tensors or layers), the weighted update
w_t D_t and one entry more for its weight:

    message_k = (w_1 D_1, ..., w_L D_L, ρC w_1, ..., ρC w_L).

C is the norm that all layers can have together, s_t = |D_t|, and w_t in [0, 1] is any function of
the person's own data: 1 (the equal mean), a count over its cap, or attention's weight e^{κ(s_t/C_t
- 1)}, where C_t = C under one flat clip and the layer's own under a clip a layer. For κ < 0 that
weight is above 1; here it is e^{κ s_t/C_t}, which is the same weight but for a factor that all
clients share and the division takes out again.

With N_t the noised sum of w_t D_t and V_t the noised sum of the weights, the release is
N_t / max(V_t, floor), the floor public. That is post-processing: only the two sums cost privacy.

Theorem. One message has the L2 norm of at most

    S = C sqrt(1 + L ρ²),

for every κ, for one flat clip and for a clip a layer with C² = Σ C_t². So neighbours move the sums

    add-remove   at most S,
    zero-out     at most S, whether nothing or an update of zeros takes the place,
    replace-one  at most 2S.

Proof. Every w_t <= 1, so Σ_t |w_t D_t|² <= Σ_t s_t² <= C² and Σ_t (ρC w_t)² <= L ρ² C². The rest of
the sum does not depend on the person: that is add-remove, and zero-out where nothing takes the
place. An update of zeros sends ρC w° for its weights, w° in [0, 1]; the difference of two numbers
in [0, 1] is in [-1, 1], so the same bound holds. For replace-one it is the triangle inequality. ∎

An update at its clip attains it for κ = 0, and for κ > 0 in a single layer. Neither the number of
places nor that of clients appears, no place is padded, and nobody's weight is divided by another's.
So the noise of the released mean is zS/V_t with V_t as it is, where the bounds of
``privacy.clipping.sensitivity`` pay for e^κ as if everybody else had not moved.

ρ shares out the noise. The weights' own noise is zS/(ρC): a larger ρ measures them better and makes
S larger. At L ρ² = 0.1 they cost 4.9 % of the noise on the sums. With z = 1 and six layers V_t is
then known to ±8.1 clients: it scales the step of a layer, and is of no account beside a hundred.

Standard library only: commands that need no tensor start fast, and devices weigh by it too.
"""

import math
from collections.abc import Sequence

from privacy.clipping.sensitivity import Adjacency

WEIGHTS_SHARE = 0.1
"""L ρ²: the room of the weights beside that of the updates, both squared."""

_FACTORS: dict[Adjacency, float] = {"zero-out": 1.0, "add-remove": 1.0, "replace-one": 2.0}


def weight_scale(layer_count: int) -> float:
    """Return ρ = sqrt(0.1 / L), L the units of weighting; ValueError unless there is one."""
    if layer_count < 1:
        raise ValueError(f"layer_count must be >= 1, got {layer_count}")
    return math.sqrt(WEIGHTS_SHARE / layer_count)


def weight_entry(clipping_norms: Sequence[float], layer_count: int) -> float:
    """Return ρC, the entry of a full weight in a message, in parameter units.

    Args:
        clipping_norms: One flat clip over all layers, or ``layer_count`` clips.
        layer_count: Units of weighting, L.

    Raises:
        ValueError: If an argument is out of range.
    """
    return weight_scale(layer_count) * _whole_clip(clipping_norms, layer_count)


def sums_sensitivity(
    clipping_norms: Sequence[float], *, layer_count: int, adjacency: Adjacency
) -> float:
    """Return the L2 sensitivity of the sums of updates and weights, in parameter units.

    It is C sqrt(1.1), and twice that for replace-one; arguments and errors as ``weight_entry``. In
    real numbers: whoever sums in floats adds what rounding moves.
    """
    if adjacency not in _FACTORS:
        raise ValueError(f"adjacency must be one of {', '.join(_FACTORS)}, got {adjacency!r}")
    whole = math.hypot(
        _whole_clip(clipping_norms, layer_count),
        math.sqrt(layer_count) * weight_entry(clipping_norms, layer_count),
    )
    return _FACTORS[adjacency] * whole


def attentive_weight(distance: float, clipping_norm: float, attention_strength: float) -> float:
    """Return attention's weight, normalised to lie in (0, 1] for either sign of κ.

    It is e^{κ(s/C - 1)} for κ >= 0 and e^{κ s/C} below. A distance that rounding left above the
    clip weighs as the clip does.

    Args:
        distance: s, the layer's norm in the clipped update, in parameter units.
        clipping_norm: C, the clip over all layers or the layer's own, in parameter units.
        attention_strength: κ.
    """
    offset = 1.0 if attention_strength >= 0 else 0.0
    return math.exp(min(0.0, attention_strength * (distance / clipping_norm - offset)))


def least_weight(attention_strength: float) -> float:
    """Return e^-|κ|, the least that attention can give an update."""
    return math.exp(-abs(attention_strength))


def _whole_clip(clipping_norms: Sequence[float], layer_count: int) -> float:
    if layer_count < 1 or len(clipping_norms) not in (1, layer_count):
        raise ValueError(
            f"clipping_norms must be one for all layers or one for each of {layer_count}, "
            f"got {len(clipping_norms)}"
        )
    for norm in clipping_norms:
        if not 0 < norm < math.inf:
            raise ValueError(f"clipping_norms must be > 0 and finite, got {norm}")
    return math.hypot(*clipping_norms)
