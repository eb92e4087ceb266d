"""Weigh clients by their data or equally: federated averaging.

References:
    [FedAvg] McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
        Data", AISTATS 2017, arXiv:1602.05629.
"""

from dataclasses import dataclass

from models.vector.layers import Layer
from server.aggregation.measured_update import Measured
from server.aggregation.settings import MeanSettings
from server.aggregation.weighted.weighing import Weight


@dataclass(frozen=True)
class MeanWeighing:
    """A weight by example counts ([FedAvg]), or the same for every slot of the round."""

    settings: MeanSettings
    layers: tuple[Layer, ...]

    @property
    def empty_weight(self) -> float:
        """Return 0 by examples, for an absent client has none; 1 if every slot counts the same."""
        return 0.0 if self.settings.weighting == "examples" else 1.0

    def weigh(self, update: Measured, example_count: int) -> tuple[Weight]:
        """Return the one weight."""
        by_examples = self.settings.weighting == "examples"
        return (Weight(float(example_count) if by_examples else 1.0),)
