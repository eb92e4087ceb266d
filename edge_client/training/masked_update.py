"""Make the vector that a device masks: weigh, scale, lay on the grid, add its share of the noise.

The mask itself is not added here: its seed belongs to one message, and a simulation has none.
"""

import numpy as np
from numpy.typing import NDArray

from models.masked.layout import MaskedLayout
from privacy.clipping.adaptive import AdaptiveClipping
from privacy.clipping.by_layer import ClippedUpdate
from privacy.noise.secure_gaussian import NoiseKeys


def masked_vector(
    layout: MaskedLayout,
    clipped: ClippedUpdate,
    *,
    clipping_norm: float,
    example_share: float,
    adaptive: AdaptiveClipping | None,
    keys: NoiseKeys,
    label: str,
) -> NDArray[np.int64]:
    """Return a device's vector before its mask, int64, shape ``(layout.element_count,)``.

    Args:
        clipped: The update within the round's clip.
        clipping_norm: C of this round, in parameter units.
        example_share: The example count over its cap, at most 1.
        adaptive: How the clip follows the clients' norms, if it does.
        keys: Keys of the rounding and of the noise; the operating system's, but in tests.
        label: Tells this draw from every other, such as ``round 3 client 7``.
    """
