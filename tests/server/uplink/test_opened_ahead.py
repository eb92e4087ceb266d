"""However many workers open, measure and add the updates of a round, it ends in the same bits."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.vector.schema import Role, Schema, TensorSpec
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise, TreeNoise
from privacy.noise.settings import NoNoise, PaperNoise, PaperServerNoise, PrivacySettings
from privacy.noise.tree import DerivedKeys
from protos.refusals import RefusalCode
from server.aggregation.closing_workers import ClosingWorkers, buffers_wanted
from server.aggregation.robust_settings import (
    GeometricMedianSettings,
    KrumSettings,
    MedianSettings,
    TrimmedAttentiveSettings,
    TrimmedMeanSettings,
)
from server.aggregation.screening import Screen
from server.aggregation.screening_settings import ScreeningSettings
from server.aggregation.settings import (
    AggregationSettings,
    AttentiveSettings,
    LiteralSettings,
    MeanSettings,
)
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution, Examined
from server.devices.refused_calls import RefusedError
from server.uplink.opened_ahead import OpenedAhead

Result = TypeVar("Result")

# Layers that a worker adds in several blocks, and one that is smaller than any register.
SCHEMA = Schema(
    (
        TensorSpec(name="embedding", shape=(70_001,), layer="embedding"),
        TensorSpec(name="cell", shape=(131_073,), layer="cell"),
        TensorSpec(name="bias", shape=(5,), layer="cell"),
    )
)
CLIENTS = 9
CLIP = 1.0
KEYS = DerivedKeys(bytes(range(32)))
GUARANTEE = {
    "clipping_norm": CLIP,
    "noise_multiplier": 1.0,
    "delta": 1e-6,
    "epsilon_budget": 80.0,
    "adjacency": "zero-out",
}
CENTRAL = CentralNoise(**GUARANTEE)  # type: ignore[arg-type]
SUMS = msgspec.structs.replace(CENTRAL, noise_on="sums")
TREE = TreeNoise(
    **GUARANTEE,  # type: ignore[arg-type]
    min_separation=1,
    max_participation=9,
    noise_on="sums",
)
EQUAL = MeanSettings(weighting="equal")
ROUNDS: dict[str, tuple[AggregationSettings, PrivacySettings]] = {
    "mean by examples": (MeanSettings(weighting="examples"), NoNoise()),
    "attentive": (AttentiveSettings(), NoNoise(clipping_norm=CLIP)),
    "literal": (LiteralSettings(norm="frobenius"), NoNoise()),
    "noise of the paper": (
        AttentiveSettings(),
        PaperServerNoise(randomisation_magnitude=0.1, clipping_norm=CLIP),
    ),
    "clip that follows": (
        EQUAL,
        NoNoise(clipping_norm=CLIP, adaptive_clipping=AdaptiveClipping(count_noise_std=0.5)),
    ),
    "clip for each tensor": (
        AttentiveSettings(),
        NoNoise(clipping_norm=CLIP, clipping="per-layer", layer_ratios=(5.0, 8.0, 1.0)),
    ),
    "central": (EQUAL, CENTRAL),
    "noised sums": (AttentiveSettings(), SUMS),
    "tree": (EQUAL, TREE),
    "median": (MedianSettings(), NoNoise()),
    "trimmed mean": (TrimmedMeanSettings(), NoNoise()),
    "Krum": (KrumSettings(attackers=1), NoNoise()),
    "geometric median": (GeometricMedianSettings(), NoNoise()),
    "trimmed attentive": (TrimmedAttentiveSettings(), NoNoise(clipping_norm=CLIP)),
}


class SlowWorkers(ClosingWorkers):
    """Workers that begin late whatever they do: memory that came back too early is found out."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        def late() -> Result:
            time.sleep(0.001)
            return work()

        return super().submit(late)


@dataclass
class Memory:
    """A few buffers that are lent, and overwritten as soon as they are given back."""

    updates: dict[int, Tensor]
    count: int
    most: int = 0
    free: threading.Semaphore = field(init=False)
    lent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.free = threading.Semaphore(self.count)

    @contextmanager
    def opened(self, slot: int) -> Iterator[tuple[Tensor, bytes]]:
        assert self.free.acquire(timeout=60), "no buffer ever came back"
        with self.lock:
            self.lent += 1
            self.most = max(self.most, self.lent)
        try:
            # The first of two neighbours is slower, so that they finish in the other order.
            time.sleep(0.002 * (slot % 2 == 0))
            if slot not in self.updates:
                raise RefusedError(RefusalCode.UNSEAL_FAILED)
            buffer = self.updates[slot].clone()
            yield buffer, b""
            buffer.fill_(float("nan"))
        finally:
            with self.lock:
                self.lent -= 1
            self.free.release()


def drawn(
    count: int = CLIENTS, *, told: bool = False, schema: Schema = SCHEMA
) -> dict[int, Tensor]:
    """Return updates by slot, every third one longer than the clip."""
    generator = torch.Generator().manual_seed(4)
    updates = {}
    for slot in range(count):
        update = torch.randn(schema.element_count, generator=generator)
        update *= (1.7 if slot % 3 == 2 else 0.2 + 0.05 * slot) / update.norm()
        updates[slot] = torch.cat([update, torch.ones(int(told))])
    return updates


def terms(rule: AggregationSettings, privacy: PrivacySettings) -> Closing:
    return Closing(
        schema=SCHEMA,
        aggregation=rule,
        privacy=privacy,
        slot_count=CLIENTS,
        generator=torch.Generator().manual_seed(2),
        seeded=True,
        round_number=1,
        noise_keys=KEYS,
        screen=Screen(ScreeningSettings(largest_element=5.0), clipping_norm=CLIP),
    )


def in_one_thread(updates: dict[int, Tensor], closing: Closing) -> Closed:
    """Close as a simulation does: one update after the other, and nothing ahead."""
    contributions = (Contribution(slot, updates[slot], slot + 1) for slot in sorted(updates))
    return close_round(torch.ones(SCHEMA.element_count), contributions, closing)


def with_workers(memory: Memory, closing: Closing, workers: ClosingWorkers) -> Closed:
    """Close as a coordinator does, of ``CLIENTS`` files."""
    closing = replace(closing, workers=workers)

    def look(update: Tensor) -> tuple[Tensor, Examined]:
        return update, closing.examine(update)

    with workers, OpenedAhead(range(CLIENTS), memory.opened, look, workers) as opened:
        contributions = (
            Contribution(slot, one[0], slot + 1, examined=one[1])
            for slot, one in enumerate(opened)
            if one is not None
        )
        return close_round(torch.ones(SCHEMA.element_count), contributions, closing)


def assert_same(one: Closed, other: Closed) -> None:
    assert torch.equal(one.parameters, other.parameters)
    assert not one.parameters.isnan().any()
    told, others = ({**vars(each), "parameters": None} for each in (one, other))
    assert told == others


@pytest.mark.parametrize("name", ROUNDS)
def test_one_two_and_sixteen_workers_end_in_the_bits_of_one_thread(name: str) -> None:
    rule, privacy = ROUNDS[name]
    updates = drawn(told=privacy.tells_fit)
    # One does not open, one is not finite, and one is outside what the screen accepts.
    del updates[3]
    updates[4][70_003] = float("inf")
    updates[6][1] = 7.0
    expected = in_one_thread(updates, terms(rule, privacy))
    assert expected.screened["not_finite"] == 1

    for count in (1, 2, 16):
        workers = SlowWorkers(count)
        memory = Memory(updates, buffers_wanted(count))

        assert_same(with_workers(memory, terms(rule, privacy), workers), expected)
        assert memory.lent == 0
        assert memory.most <= memory.count


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(count=st.integers(1, 17), buffers=st.integers(1, 40), missing=st.sets(st.integers(0, 8)))
def test_no_number_of_workers_and_buffers_changes_a_bit_or_waits_for_ever(
    count: int, buffers: int, missing: set[int]
) -> None:
    updates = drawn()
    for slot in missing - {0}:
        del updates[slot]
    closing = terms(AttentiveSettings(), NoNoise(clipping_norm=CLIP))
    expected = in_one_thread(updates, closing)
    closing = terms(AttentiveSettings(), NoNoise(clipping_norm=CLIP))

    workers = ClosingWorkers(count, buffers=buffers)

    assert_same(with_workers(Memory(updates, buffers), closing, workers), expected)


@pytest.mark.parametrize("count", [2, 4])
def test_as_many_updates_are_opened_at_one_time_as_there_are_workers(count: int) -> None:
    # Nobody passes before all have come.
    together = threading.Barrier(count, timeout=60)

    @contextmanager
    def opened(slot: int) -> Iterator[tuple[int, bytes]]:
        together.wait()
        yield slot, b""

    workers = ClosingWorkers(count)
    with workers, OpenedAhead(range(3 * count), opened, lambda slot: slot, workers) as ahead:
        assert list(ahead) == list(range(3 * count))


def test_generated_tensors_reach_the_method_as_one_thread_hands_them_on() -> None:
    schema = Schema(
        (
            TensorSpec(name="weight", shape=(3,), layer="only"),
            TensorSpec(name="made", shape=(2,), layer="made", role=Role.GENERATED),
        )
    )
    privacy = NoNoise(clipping_norm=5.0)
    closing = replace(terms(EQUAL, privacy), schema=schema)

    seen = closing.examine(torch.tensor([1.0, 2.0, 2.0, 30.0, 40.0]))

    assert seen.shared.tolist() == [1.0, 2.0, 2.0]
    assert seen.measured is not None
    assert seen.measured.norm == 3.0
    assert seen.clipped is not None
    # 3-4-5: a length of 50 is cut to 5.
    assert seen.clipped.tolist() == pytest.approx([3.0, 4.0], rel=1e-5)
    assert closing.examine(torch.tensor([1.0, 2.0, 2.0, float("nan"), 0.0])).error is not None


@pytest.mark.parametrize("count", [1, 2, 16])
def test_the_error_of_a_worker_ends_the_close_and_every_buffer_comes_back(count: int) -> None:
    memory = Memory(drawn(), buffers_wanted(count))
    workers = ClosingWorkers(count)

    def look(update: Tensor) -> Tensor:
        if update[0] == memory.updates[5][0]:
            raise MemoryError("no room to decode")
        return update

    taken = []
    with (
        pytest.raises(MemoryError, match="no room to decode"),
        workers,
        OpenedAhead(range(CLIENTS), memory.opened, look, workers) as opened,
    ):
        for one in opened:
            assert one is not None
            taken.append(one)

    assert len(taken) == 5
    assert memory.lent == 0


def test_a_shortage_of_descriptors_is_raised_and_another_failure_to_read_is_a_missing_update() -> (
    None
):
    @contextmanager
    def opened(number: int) -> Iterator[tuple[str, bytes]]:
        if number:
            raise OSError(number, "cannot be opened")
        yield "an update", b""

    with ClosingWorkers(2) as workers:
        with OpenedAhead([0, errno.ENOENT, 0], opened, len, workers) as some:
            assert list(some) == [9, None, 9]
        with (
            OpenedAhead([errno.EMFILE], opened, len, workers) as short,
            pytest.raises(OSError, match="cannot be opened"),
        ):
            next(short)


def test_noise_of_devices_is_measured_ahead_as_in_its_turn() -> None:
    privacy = PaperNoise(randomisation_magnitude=0.1, clipping_norm=CLIP, score="clean")
    updates = drawn()
    for slot, update in updates.items():
        updates[slot] = torch.cat([update, torch.tensor([0.3, 0.2, 0.1])])
    expected = in_one_thread(updates, terms(AttentiveSettings(), privacy))

    closed = with_workers(
        Memory(updates, buffers_wanted(2)), terms(AttentiveSettings(), privacy), ClosingWorkers(2)
    )

    assert_same(closed, expected)
