"""Make the vector that a device masks: weigh, scale, lay on the grid, add its share of the noise.

The mask is not added here: its seed belongs to one message, and a simulation has none. Where each
part lies and what it is scaled by is said in ``models.masked.layout``.
"""

import math

import numpy as np
from numpy.typing import NDArray

from models.masked.layout import MaskedLayout
from models.settings.weighing import AttentiveWeights, EqualWeights
from privacy.clipping.by_layer import ClippedUpdate
from privacy.clipping.clip import tensor_norms
from privacy.clipping.noised_sums import attentive_weight
from privacy.masking.grid import add_share, to_grid
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.secure_gaussian import NoiseKeys


def masked_vector(
    layout: MaskedLayout,
    clipped: ClippedUpdate,
    privacy: MaskedNoise,
    *,
    example_share: float,
    keys: NoiseKeys,
    label: str,
) -> NDArray[np.int32]:
    """Return a device's vector before its mask, int32, shape ``(layout.element_count,)``.

    Args:
        clipped: The update within the clip of ``privacy``, which is the round's.
        example_share: The example count over its cap, at most 1.
        keys: Keys of the rounding and of the noise: the operating system's, but in tests.
        label: Tells these draws from all others, such as ``round 3 client 7``.

    Raises:
        UnusableUpdateError: If an element is NaN or infinite.
    """
    values = weighed_message(layout, clipped, privacy, example_share)
    on_grid = to_grid(values, layout.grid, keys.draw(f"{label} rounding"))
    del values
    add_share(on_grid, layout.grid, keys.draw(f"{label} share"))
    # The check elements are ones, and have no noise.
    vector = np.ones(layout.element_count, np.int32)
    vector[: layout.noised_count] = on_grid
    return vector


def weighed_message(
    layout: MaskedLayout, clipped: ClippedUpdate, privacy: MaskedNoise, example_share: float
) -> NDArray[np.float64]:
    """Return the elements that get noise, without it, in clipping norms; as ``masked_vector``."""
    update, clip = clipped.values.numpy(), privacy.clipping_norm
    weights = _weights(layout, clipped, clip, example_share)
    values = np.empty(layout.noised_count)
    for unit, weight in zip(layout.units, weights, strict=True):
        for where in unit.ranges:
            # float64 throughout, in numpy's own small blocks.
            np.multiply(update[where], weight / clip, out=values[where], dtype=np.float64)
    values[layout.weights] = weights
    values[layout.weights] *= layout.weight_entry
    if layout.fit_entry is not None and privacy.adaptation is not None:
        values[-1] = layout.fit_entry * (clipped.has_fitted - privacy.adaptation.target_quantile)
    return values


def _weights(
    layout: MaskedLayout, clipped: ClippedUpdate, clip: float, example_share: float
) -> list[float]:
    """Return the weight of each unit, in [0, 1]."""
    weighing = layout.weighing
    if not isinstance(weighing, AttentiveWeights):
        weight = 1.0 if isinstance(weighing, EqualWeights) else min(1.0, example_share)
        return [weight] * len(layout.units)
    norms = tensor_norms(clipped.values, list(layout.schema.slices.values()))
    return [
        attentive_weight(
            math.hypot(*(norms[index] for index in unit.tensors)),
            unit_clip * clip,
            weighing.attention_strength,
        )
        for unit, unit_clip in zip(layout.units, layout.unit_clips, strict=True)
    ]
