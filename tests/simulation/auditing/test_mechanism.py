import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from models.vector.schema import Schema, TensorSpec
from privacy.auditing.scores import AuditError
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.gaussian import CentralGaussian
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.mode import CalibratedRound
from privacy.noise.settings import NoNoise, PaperServerNoise
from server.aggregation.settings import AttentiveSettings, MeanSettings
from server.closing.summing import Contribution
from simulation.auditing.canaries import Coordinator, canary_name, crowd_size, run_canaries
from simulation.auditing.mechanism import (
    MechanismAudit,
    Subject,
    audit_mechanism,
    claimed_against,
    claimed_multiplier,
    neighbours_of,
    rounds_needed,
    subject,
)
from simulation.auditing.rounds_file import RoundsFile

SCHEMA = Schema(
    (
        TensorSpec(name="weight", shape=(16, 16), layer="first"),
        TensorSpec(name="bias", shape=(32,), layer="second"),
    )
)
EQUAL = MeanSettings(weighting="equal")
# So many slots that attention lets 16 canaries into a round; empty ones cost nothing.
SLOTS = 1000
SEED = 5


@pytest.fixture(autouse=True)
def repeatable_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cryptographic generator repeat: an audit is wrong three times in 10,000."""
    monkeypatch.setattr(os, "urandom", random.Random(SEED).randbytes)


def central(
    noise_multiplier: float,
    *,
    clipping_norm: float = 0.5,
    adjacency: Literal["zero-out", "replace-one"] = "zero-out",
    clipping: Literal["flat", "per-layer"] = "flat",
    noise_on: Literal["mean", "sums"] = "mean",
) -> CentralNoise:
    return CentralNoise(
        clipping_norm=clipping_norm,
        clipping=clipping,
        noise_multiplier=noise_multiplier,
        delta=1e-6,
        epsilon_budget=8.0,
        adjacency=adjacency,
        noise_on=noise_on,
    )


def audited(
    mechanism: Subject, *, round_count: int = 200, coordinator: Coordinator | None = None
) -> MechanismAudit:
    changed = mechanism if coordinator is None else mechanism._replace(coordinator=coordinator)
    return audit_mechanism(changed, round_count=round_count, seed=SEED)


@dataclass(frozen=True)
class RedrawsAfterRestart:
    """A coordinator that forgets after a crash that a round was published, and closes it again."""

    inner: Coordinator

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        return [*self.inner.publish(contributions), *self.inner.publish(contributions)]


@dataclass(frozen=True)
class PublishesAgain:
    """A coordinator that publishes a recorded release once more after a crash, as it should."""

    inner: Coordinator

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        released = self.inner.publish(contributions)
        return [*released, *released]


@dataclass(frozen=True)
class CountsTwice:
    """A coordinator that takes one client's update in two slots."""

    inner: Coordinator
    client: str

    def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
        again = [
            replace(one, slot=SLOTS) for one in contributions if one.client_name == self.client
        ]
        return self.inner.publish([*contributions, *again])


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0])
def test_the_real_close_has_the_noise_it_claims(truth: float) -> None:
    mechanism = subject(SCHEMA, AttentiveSettings(), central(truth), slot_count=SLOTS, seed=1)
    needed = rounds_needed(mechanism.privacy, 16, precision=0.05)

    found = audited(mechanism, round_count=needed)

    # The standard error is 5 %, so that a fifth is four of them.
    assert found.estimate.noise_multiplier == pytest.approx(truth, rel=0.2)
    assert found.faults == []
    assert found.claimed_epsilon is not None
    assert 0 < found.bound.epsilon < found.claimed_epsilon


def test_noise_on_sums_is_what_is_claimed() -> None:
    summed = central(1.0, noise_on="sums")
    mechanism = subject(SCHEMA, AttentiveSettings(), summed, slot_count=SLOTS, seed=1)

    found = audited(mechanism)

    # A tenth of the squared sensitivity is the weights', in which canaries are not scored. With
    # 3,200 scores the standard error is 4 %.
    assert found.estimate.noise_multiplier == pytest.approx(math.sqrt(1.1), rel=0.12)
    assert found.faults == []


def test_halved_noise_on_sums_is_caught() -> None:
    summed = central(1.0, noise_on="sums")
    halved = central(0.5, noise_on="sums")
    claimed = subject(SCHEMA, EQUAL, summed, slot_count=SLOTS, seed=1)
    faulty = subject(SCHEMA, EQUAL, halved, slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=faulty.coordinator)

    assert any("too little noise" in fault for fault in found.faults)


def test_weights_that_are_not_noised_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    summed = central(1.0, noise_on="sums")
    claimed = subject(SCHEMA, EQUAL, summed, slot_count=SLOTS, seed=1)
    whole = CentralGaussian.at_server

    def spared(
        mode: CentralGaussian,
        aggregate: Tensor,
        generator: torch.Generator,
        calibrated: CalibratedRound | None = None,
    ) -> Tensor:
        whole(mode, aggregate[: SCHEMA.element_count], generator, calibrated)
        return aggregate

    monkeypatch.setattr(CentralGaussian, "at_server", spared)

    found = audited(claimed)

    assert found.faults == [
        "too little noise on the weights: 0 clients, 3.32 are claimed; what is divided by them "
        "tells who came"
    ]


def test_halved_noise_is_caught() -> None:
    claimed = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)
    faulty = subject(SCHEMA, EQUAL, central(0.5), slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=faulty.coordinator)

    assert found.estimate.noise_multiplier == pytest.approx(0.5, rel=0.2)
    assert any("too little noise" in fault for fault in found.faults)


def test_a_skipped_clip_is_caught() -> None:
    claimed = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)
    # The same noise in parameter units, and a clip that the canaries never reach.
    unclipped = central(1.0 / 100, clipping_norm=0.5 * 100)
    faulty = subject(SCHEMA, EQUAL, unclipped, slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=faulty.coordinator)

    # Canaries are four times as long as the clip.
    assert found.estimate.noise_multiplier == pytest.approx(0.25, rel=0.2)
    assert any("no clip" in fault for fault in found.faults)


def test_noise_drawn_again_after_a_restart_is_caught() -> None:
    claimed = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=RedrawsAfterRestart(claimed.coordinator))

    # The mean of two draws has 1/sqrt(2) of the noise.
    assert found.estimate.noise_multiplier == pytest.approx(0.5**0.5, rel=0.2)
    assert any("more than one draw" in fault for fault in found.faults)
    assert found.republished == 200
    assert any("200 rounds were published more than once" in fault for fault in found.faults)


def test_the_same_release_published_again_is_no_fault() -> None:
    claimed = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=PublishesAgain(claimed.coordinator))

    assert (found.faults, found.republished) == ([], 0)


def test_one_client_counted_twice_is_caught() -> None:
    claimed = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)

    found = audited(claimed, coordinator=CountsTwice(claimed.coordinator, canary_name(3)))

    assert found.worst.canary == 3
    assert any("one client counts more than once" in fault for fault in found.faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("privacy", "slot_count"),
    [
        (central(0.5, adjacency="replace-one"), SLOTS),
        (central(0.5, clipping="per-layer"), SLOTS),
        (central(0.5), 12),
        (
            TreeNoise(
                clipping_norm=0.5,
                noise_multiplier=0.5,
                delta=1e-6,
                epsilon_budget=8.0,
                adjacency="zero-out",
                min_separation=1,
                max_participation=1,
            ),
            SLOTS,
        ),
        (
            LocalNoise(clipping_norm=0.5, noise_multiplier=0.5, delta=1e-6, epsilon_budget=8.0),
            SLOTS,
        ),
    ],
)
def test_every_mode_with_a_guarantee_is_audited_as_what_it_claims(
    privacy: CentralNoise | TreeNoise | LocalNoise, slot_count: int
) -> None:
    mechanism = subject(SCHEMA, AttentiveSettings(), privacy, slot_count=slot_count, seed=1)
    count = len(mechanism.canaries.directions)

    found = audited(mechanism, round_count=2400 // count)

    assert found.estimate.noise_multiplier == pytest.approx(0.5, rel=0.1)
    assert found.faults == []
    assert found.guarantee.startswith(f"{privacy.__struct_config__.tag}: ")
    # A device's own noise is there for whoever sees its update.
    of_coordinator = " and against the coordinator" if isinstance(privacy, LocalNoise) else ""
    assert found.claimed_against == f"against readers of releases{of_coordinator}"


def test_noise_under_masks_is_claimed_against_both_onlookers_at_one_multiplier() -> None:
    masked = MaskedNoise(
        clipping_norm=0.5,
        noise_multiplier=0.5,
        delta=1e-6,
        epsilon_budget=8.0,
        coordinator_epsilon_budget=8.0,
        adjacency="replace-one",
        honest_share=0.7,
    )

    assert claimed_multiplier(masked) == 0.5
    assert neighbours_of(masked) == "replace-one"
    assert claimed_against(masked) == "against readers of releases and against the coordinator"
    assert claimed_against(NoNoise()) == "nobody"


def test_a_mode_without_a_guarantee_claims_nothing() -> None:
    paper = PaperServerNoise(randomisation_magnitude=0.001, clipping_norm=0.5)
    mechanism = subject(SCHEMA, AttentiveSettings(), paper, slot_count=10, seed=1)

    found = audited(mechanism)

    # One of ten slots and the others empty: the update weighs 1, a zero update e^-κ. Two opposite
    # updates lie 2 * 0.5 / (1 + 9 e^-0.5) apart, under noise of 0.001.
    apart = 1.0 / (1 + 9 * np.exp(-0.5))
    assert found.estimate.noise_multiplier == pytest.approx(0.001 / apart, rel=0.2)
    assert (found.claimed_noise_multiplier, found.claimed_epsilon, found.faults) == (None, None, [])


def test_without_noise_and_clip_every_canary_is_seen() -> None:
    mechanism = subject(SCHEMA, MeanSettings(), NoNoise(), slot_count=10, seed=1)

    found = audited(mechanism)

    assert found.estimate.noise_multiplier < 1e-5
    assert found.bound.correct_count == found.bound.guess_count


def test_attention_lets_fewer_canaries_into_a_small_round() -> None:
    # κ = 0.5, M = 1000: 1 + 0.01 (e^0.5 + 999)/(e^0.5 - 1) = 16.4; M = 100: 2.6.
    assert crowd_size(AttentiveSettings(), SCHEMA, 1000) == 16
    assert crowd_size(AttentiveSettings(), SCHEMA, 100) == 2
    assert crowd_size(AttentiveSettings(), SCHEMA, 3) == 1
    assert crowd_size(EQUAL, SCHEMA, 3) == 3


def test_a_stopped_audit_goes_on(tmp_path: Path) -> None:
    mechanism = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)
    kept = RoundsFile(tmp_path / "audit" / "canaries.npz", "one audit")
    first = audit_mechanism(mechanism, round_count=96, seed=SEED, kept=kept)
    done: list[int] = []

    second = audit_mechanism(mechanism, round_count=128, seed=SEED, kept=kept, on_round=done.append)

    stored = kept.read()
    assert stored is not None
    assert (first.round_count, second.round_count, stored.round_count) == (96, 128, 128)
    assert done == [128]
    # The coins are those of an audit that was never stopped.
    whole = run_canaries(mechanism.coordinator, mechanism.canaries, round_count=128, seed=SEED)
    assert np.array_equal(stored.included, whole.included)
    with pytest.raises(AuditError, match="holds an audit of other settings"):
        RoundsFile(tmp_path / "audit" / "canaries.npz", "another").read()


def test_damaged_scores_of_an_audit_are_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "canaries.npz"
    for content in (b"", b"no archive", b"PK\x03\x04 torn"):
        path.write_bytes(content)
        with pytest.raises(AuditError, match=r"canaries\.npz is damaged: .*; remove it"):
            RoundsFile(path, "one audit").read()

    np.savez(path, scores=np.zeros(3))
    with pytest.raises(AuditError, match=r"canaries\.npz is damaged: .*described.*; remove it"):
        RoundsFile(path, "one audit").read()


def test_what_cannot_be_audited_is_refused() -> None:
    large = Schema((TensorSpec(name="weight", shape=(3000, 3000), layer="only"),))
    small = Schema((TensorSpec(name="weight", shape=(2, 2), layer="only"),))

    with pytest.raises(AuditError, match="9000000 elements is too large for 16 canaries"):
        subject(large, EQUAL, central(1.0), slot_count=SLOTS, seed=1)
    assert (
        len(subject(small, EQUAL, central(1.0), slot_count=SLOTS, seed=1).canaries.directions) == 4
    )
    with pytest.raises(AuditError, match="precision must be above 0"):
        rounds_needed(central(1.0), 16, precision=0.0)
    mechanism = subject(SCHEMA, EQUAL, central(1.0), slot_count=1, seed=1)
    with pytest.raises(AuditError, match="at least 30 canaries must be included"):
        audited(mechanism, round_count=40)


def test_a_release_that_is_not_finite_is_refused() -> None:
    mechanism = subject(SCHEMA, EQUAL, central(1.0), slot_count=SLOTS, seed=1)

    class Broken:
        def publish(self, contributions: Sequence[Contribution]) -> Sequence[Tensor]:
            return [torch.full((SCHEMA.element_count,), torch.nan)]

    with pytest.raises(AuditError, match="NaN or infinite"):
        audited(mechanism, coordinator=Broken())


def test_an_adaptive_clip_is_audited_where_it_starts() -> None:
    privacy = msgspec.convert(
        {
            "mode": "none",
            "clipping_norm": 0.5,
            "adaptive_clipping": {"count_noise_std": 1.0},
        },
        NoNoise,
    )

    mechanism = subject(SCHEMA, EQUAL, privacy, slot_count=4, seed=1)

    assert isinstance(mechanism.privacy, NoNoise)
    assert mechanism.privacy.adaptive_clipping is None
