"""The protocol of a weighing: the one thing in which weighted rules differ."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from models.vector.layers import Layer
from server.aggregation.measured_update import Measured


class Weight(NamedTuple):
    """The unnormalised weight ``factor * e^exponent``, which may leave the float range."""

    factor: float
    exponent: float = 0.0


class Weighing(Protocol):
    """A weight for each layer from one measured update. Weighings of one round are equal."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the units of weighting; together they cover the vector once."""
        ...

    @property
    def empty_weight(self) -> float:
        """Return what an empty slot weighs in each layer: a zero update's weight, or nothing."""
        ...

    def weigh(self, update: Measured, example_count: int) -> Sequence[Weight]:
        """Return the update's weight in each layer."""
        ...
