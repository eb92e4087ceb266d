"""The noise of devices, measured in what the coordinator unmasks, and the faults that it shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from models.vector.schema import Schema, TensorSpec
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.secure_gaussian import NoiseKeys
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.closing.summing import Contribution
from simulation.auditing.masked_sums import UnmaskingCoordinator
from simulation.auditing.mechanism import (
    MechanismAudit,
    Subject,
    audit_mechanism,
    rounds_needed,
    subject,
)
from tests.masked_scene import RepeatedKeys, masked_noise

SCHEMA = Schema((TensorSpec(name="weight", shape=(8, 8), layer="only"),))
EQUAL = MeanSettings(weighting="equal")
SEED = 5


class CountedKeys:
    """Keys that follow from their number, so that an audit repeats; no two are the same."""

    repeats = False

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self, label: str, /) -> bytes:
        """Return the next key."""
        self._drawn += 1
        return RepeatedKeys().draw(f"{self._drawn} {label}")


def mechanism(
    privacy: MaskedNoise,
    *,
    quorum: int = 4,
    aggregation: AggregationSettings = EQUAL,
    keys: NoiseKeys | None = None,
) -> Subject:
    made = subject(SCHEMA, aggregation, privacy, slot_count=quorum, seed=1, quorum=quorum)
    assert isinstance(made.coordinator, UnmaskingCoordinator)
    return made._replace(coordinator=replace(made.coordinator, keys=keys or CountedKeys()))


def audited(made: Subject, *, round_count: int = 500) -> MechanismAudit:
    return audit_mechanism(made, round_count=round_count, seed=SEED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("privacy", "aggregation"),
    [
        (masked_noise(noise_multiplier=0.5), EQUAL),
        (masked_noise(noise_multiplier=0.5, honest_share=0.5), AttentiveSettings()),
    ],
)
def test_the_devices_together_add_the_noise_that_is_claimed(
    privacy: MaskedNoise, aggregation: AggregationSettings
) -> None:
    made = mechanism(privacy, aggregation=aggregation)
    needed = rounds_needed(privacy, len(made.canaries.directions), precision=0.03)

    found = audited(made, round_count=needed)

    # The standard error is 3 %, so that a tenth is three of them.
    assert found.estimate.noise_multiplier == pytest.approx(privacy.noise_multiplier, rel=0.1)
    assert found.faults == []
    assert found.guarantee.startswith("masked: ")


def test_devices_that_add_half_their_share_are_caught() -> None:
    made = mechanism(masked_noise())
    coordinator = made.coordinator
    assert isinstance(coordinator, UnmaskingCoordinator)
    grid = coordinator.layout.grid
    layout = replace(coordinator.layout, grid=replace(grid, share_std=grid.share_std / 2))

    found = audited(made._replace(coordinator=replace(coordinator, layout=layout)))

    assert found.estimate.noise_multiplier == pytest.approx(0.5, rel=0.2)
    assert any(fault.startswith("too little noise") for fault in found.faults)
    assert any("too little noise on the weights" in fault for fault in found.faults)


@dataclass(frozen=True)
class OneSkips(UnmaskingCoordinator):
    """A coordinator of devices of which one adds its update and no noise."""

    def vector(self, slot: int, update: Tensor | None) -> NDArray[np.int64]:
        if slot > 0:
            return super().vector(slot, update)
        quiet = replace(self.layout, grid=replace(self.layout.grid, share_std=0.0))
        return replace(self, layout=quiet).vector_of_all(slot, update)

    def vector_of_all(self, slot: int, update: Tensor | None) -> NDArray[np.int64]:
        return UnmaskingCoordinator.vector(self, slot, update)


def test_a_device_that_skips_its_noise_is_caught_where_two_are_believed() -> None:
    made = mechanism(masked_noise(), quorum=2)
    inner = made.coordinator
    assert isinstance(inner, UnmaskingCoordinator)
    skipping = OneSkips(inner.layout, inner.privacy, inner.canaries, inner.honest, inner.keys)

    found = audited(made._replace(coordinator=skipping), round_count=1000)

    assert found.estimate.noise_multiplier == pytest.approx(math.sqrt(0.5), rel=0.15)
    assert any("too little noise" in fault for fault in found.faults)


@dataclass(frozen=True)
class SparesWeights(UnmaskingCoordinator):
    """A coordinator of devices that add noise to updates and none to their weights."""

    def sums(self, contributions: Sequence[Contribution]) -> NDArray[np.float64]:
        noised = super().sums(contributions)
        exact = sum((self._message(one.update) for one in contributions), np.zeros(len(noised)))
        noised[self.layout.weights] = exact[self.layout.weights]
        return noised


def test_weights_without_noise_are_caught() -> None:
    made = mechanism(masked_noise())
    inner = made.coordinator
    assert isinstance(inner, UnmaskingCoordinator)
    sparing = SparesWeights(inner.layout, inner.privacy, inner.canaries, inner.honest, inner.keys)

    found = audited(made._replace(coordinator=sparing))

    assert any(fault.startswith("too little noise on the weights: 0 cl") for fault in found.faults)


def test_a_seed_of_noise_used_twice_is_caught() -> None:
    found = audited(mechanism(masked_noise(), keys=RepeatedKeys()), round_count=128)

    # The same draws in every round: a score moves by whether its canary was in, and by no more.
    assert any("too little noise" in fault for fault in found.faults)
