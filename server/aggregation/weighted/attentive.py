"""Weigh each layer by how far the client moved it, with a bound (FedAtt, clipped form).

A layer's weight is e^{κ(s/C - 1)}: s is the L2 norm of the layer in the clipped update and C the
clipping norm over all layers, or the layer's own. No client counts more than e^|κ| times another.
With κ = λC and clipping that never bites this is [FedAtt] Eq. 2 (Ji et al., IJCNN 2019,
arXiv:1812.07108) at temperature λ. κ = 0 is the equal mean, bit for bit.

An empty slot adds a zero update: e^-κ below the line, nothing above. So the number of slots, not of
answers, bounds one client's influence. The result is a ratio of two plain sums over clients: it
streams. Where the noise is on the sums, weights lie in (0, 1] (``privacy.clipping.noised_sums``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from models.vector.layers import Layer
from server.aggregation.measured_update import Measured
from server.aggregation.settings import AttentiveSettings
from server.aggregation.weighted.weighing import Weight


def attentive_weight(distance: float, clipping_norm: float, attention_strength: float) -> float:
    """Return e^{κ(s/C - 1)}: [FedAtt] Eq. 2 in clipped form, in [e^-κ, 1] for κ >= 0.

    ``distance`` s is how far the client moved the layer after clipping; an empty place has 0.
    """
    # Eq. 2 has no minus sign: the client that moved furthest weighs most.
    return math.exp(attention_strength * (distance / clipping_norm - 1))


@dataclass(frozen=True)
class AttentiveWeighing:
    """The weight e^{κ(s/C - 1)}, layer by layer; C for each layer, in parameter units.

    ``weight_of`` gives it, up to a factor that all share, from s, C and κ.
    """

    settings: AttentiveSettings
    layers: tuple[Layer, ...]
    clipping_norms: tuple[float, ...]
    weight_of: Callable[[float, float, float], float] = attentive_weight

    @property
    def empty_weight(self) -> float:
        """Return the weight of a zero update, e^-κ."""
        return self.weight_of(0.0, 1.0, self.settings.attention_strength)

    def weigh(self, update: Measured, example_count: int) -> tuple[Weight, ...]:
        """Return a weight for each layer; the example count plays no part."""
        norms, strength = update.tensor_norms, self.settings.attention_strength
        return tuple(
            Weight(
                self.weight_of(
                    math.hypot(*(norms[index] for index in layer.tensors)), clip, strength
                )
            )
            for layer, clip in zip(self.layers, self.clipping_norms, strict=True)
        )
