"""Bound how far one person can move the aggregate: the L2 sensitivity that noise is scaled to.

The map. Client k of the M slots of a round sends D_k, clipped to |D_k| <= C. In each layer the
attentive rule returns A = Σ w_k D_k / Σ w_k with w_k = e^{κ(|D_k|/C - 1)}; an empty slot counts
as a client that sent zeros, so M is fixed and public. Write E = e^|κ| and n = M - 1.

Neighbours. Two rounds are neighbours if they differ in the update of one person:

    zero-out     that person's slot is empty in one of them (M stays: the product's relation);
    replace-one  the slot holds another update in each;
    add-remove   the slot itself is missing in one, so that both sums change. Slots are then not
                 padded, and ``slot_count`` is the number of clients in the larger round.

Theorem, for one layer:

    zero-out     exactly CE/(E + n) if n >= n0(κ), else exactly the largest move that one other
                 client between 0 and C allows (``privacy.clipping.attention_bounds``); at most
                 CE/(E + n) for κ < 0;
    replace-one  exactly 2CE/(E + n), and at most that for κ < 0;
    add-remove   at most min(T, 2CE/(E + n)), where T follows a chord of x ln x and is the smaller
                 one when κ is not small; at most 2CE/(E + n) for κ < 0.

Layers. A clip C_l for each layer gives sqrt(Σ Δ(C_l)²). One flat clip over all layers, with weights
still layer by layer, is proved for 0 <= κ <= 1 and M >= 3, and refused elsewhere:

    zero-out     at most Δ' = 2CE/(n + E + sqrt(M(M - 2 + 2E))), however many the layers;
    replace-one  at most 2Δ';
    add-remove   at most CE/(E + n) (1 + sqrt(nE/(E + n - 1))).

Proof idea. Let x be the weight of person 1 relative to a zero update, S and V the sums of the
others' weights and weighted updates.

    zero-out     A - A' = x D_1/(x+S) - V (x-1)/((x+S)(1+S)); its bound rises in |D_1|, so
                 |D_1| = C. Given S, |V| <= Σ x_k ln x_k C/κ is convex in the weights, so all
                 others but one sit at norm 0 or C. A chord of x ln x leaves
                 CE(2S+1-n)/((1+S)(E+S)), whose maximum over S is Δ' and which is at most CE/(E+n)
                 once one other sits at C. Attained by D_1 = -Cu, others 0.
    κ < 0        x <= 1 gives |A - A'| <= C/(1+S), and S >= n/E.
    replace-one  With p = x/(x+S) >= q and the others' mean |v| <= C,
                 A - A' = p D_1 - q D_1' - (p-q) v is at most 2pC, and p <= E/(E+n).
    flat clip    The one-layer bound over s = |D_1^l| rises in s where n >= φ(κ)/φ(-κ),
                 φ(u) = e^u - 1 - u. So Σ_l Δ_l² <= (Δ'/C)² Σ_l s_l². For add-remove
                 A - A' = p_l (D_1 - v) in layer l, and by convexity
                 Σ_l |v_l|² <= nC² max weight <= nC² E/(E+n-1).

All of it is exact arithmetic on norms of effective parameters: where a layer trains at another
scale (equalised learning rate), its update is rescaled before it is clipped.
"""

import math
from collections.abc import Sequence
from typing import Literal

from privacy.clipping import attention_bounds

Adjacency = Literal["zero-out", "replace-one", "add-remove"]

LARGEST_FLAT_STRENGTH = 1.0
"""κ up to which the bound under a flat clip over several layers is proved."""

LEAST_FLAT_SLOTS = 3
"""Slots from which it is."""

_MEAN_FACTOR: dict[Adjacency, float] = {"zero-out": 1.0, "replace-one": 2.0, "add-remove": 2.0}


class UnprovedSensitivityError(ValueError):
    """Raised where no bound is proved; the text names the value, the rule and the remedy."""


def mean_sensitivity(
    *,
    slot_count: int,
    clipping_norms: Sequence[float],
    adjacency: Adjacency = "zero-out",
    server_step_size: float = 1.0,
) -> float:
    """Return the L2 sensitivity of the step under the equal mean over all slots, exactly.

    It is C/M for zero-out and 2C/M for replace-one and add-remove, C the norm that all layers can
    have together. Weights by example counts have no such bound. Arguments as
    `attentive_sensitivity`. Raises ValueError if an argument is out of range.
    """
    _check(slot_count, clipping_norms, adjacency, server_step_size)
    return server_step_size * math.hypot(*clipping_norms) * _MEAN_FACTOR[adjacency] / slot_count


def attentive_sensitivity(
    *,
    slot_count: int,
    attention_strength: float,
    clipping_norms: Sequence[float],
    layer_count: int,
    adjacency: Adjacency = "zero-out",
    server_step_size: float = 1.0,
) -> float:
    """Return the L2 sensitivity of the step under attentive aggregation.

    With adaptive clipping the clip changes from round to round, and λ = κ/C with it; κ does not.
    Each round's sensitivity is that of the clip its plan named.

    Args:
        slot_count: Places of a round, M; an empty one counts as a client that sent zeros.
        attention_strength: κ; a layer weighs e^{κ(s/C - 1)}, C being the layer's own clip where
            there is one for each.
        clipping_norms: One flat clip over all layers, or ``layer_count`` clips, in parameter
            units.
        adjacency: The neighbouring relation; see the module.
        server_step_size: Factor of the aggregate.

    Raises:
        UnprovedSensitivityError: If one flat clip covers several layers outside the proved range.
        ValueError: If an argument is out of range.
    """
    _check(slot_count, clipping_norms, adjacency, server_step_size)
    limit = attention_bounds.LARGEST_STRENGTH
    if not abs(attention_strength) <= limit:
        raise ValueError(
            f"attention_strength must lie in [-{limit:g}, {limit:g}], got {attention_strength}"
        )
    if layer_count < 1 or len(clipping_norms) not in (1, layer_count):
        raise ValueError(
            f"clipping_norms must be one for all layers or one for each of {layer_count}, "
            f"got {len(clipping_norms)}"
        )
    is_flat = len(clipping_norms) < layer_count
    if is_flat:
        _require_proved_flat_clip(slot_count, attention_strength)
    bound = _FLAT_BOUNDS[adjacency] if is_flat else _LAYER_BOUNDS[adjacency]
    # Each layer's bound is its clip times the same factor, so that the root of the sum of their
    # squares is the norm of all clips times the factor.
    return server_step_size * math.hypot(*clipping_norms) * bound(slot_count, attention_strength)


_LAYER_BOUNDS = {
    "zero-out": attention_bounds.zero_out,
    "replace-one": attention_bounds.replace_one,
    "add-remove": attention_bounds.add_remove,
}
_FLAT_BOUNDS = {
    "zero-out": attention_bounds.flat_zero_out,
    "replace-one": attention_bounds.flat_replace_one,
    "add-remove": attention_bounds.flat_add_remove,
}


def _require_proved_flat_clip(slot_count: int, attention_strength: float) -> None:
    if attention_strength == 0:
        return  # The equal mean.
    if not 0 < attention_strength <= LARGEST_FLAT_STRENGTH:
        raise UnprovedSensitivityError(
            f"attention_strength must lie in [0, {LARGEST_FLAT_STRENGTH:g}] for one clip over "
            f"several layers, got {attention_strength}: no bound is proved there; "
            "lower it, or clip each layer by itself"
        )
    if slot_count < LEAST_FLAT_SLOTS:
        raise UnprovedSensitivityError(
            f"slot_count must be >= {LEAST_FLAT_SLOTS} for one clip over several layers under "
            f"attention, got {slot_count}: no bound is proved there; "
            "draw more clients, or clip each layer by itself"
        )


def _check(
    slot_count: int, clipping_norms: Sequence[float], adjacency: str, server_step_size: float
) -> None:
    if slot_count < 1:
        raise ValueError(f"slot_count must be >= 1, got {slot_count}")
    if not clipping_norms:
        raise ValueError("clipping_norms must hold at least one, got none")
    for norm in clipping_norms:
        if not 0 < norm < math.inf:
            raise ValueError(f"clipping_norms must be > 0 and finite, got {norm}")
    if not 0 < server_step_size < math.inf:
        raise ValueError(f"server_step_size must be > 0 and finite, got {server_step_size}")
    if adjacency not in _MEAN_FACTOR:
        raise ValueError(f"adjacency must be one of {', '.join(_MEAN_FACTOR)}, got {adjacency!r}")
