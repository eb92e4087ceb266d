"""Each robust rule against arithmetic by hand, and against the same on a stacked cohort."""

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import Tensor
from torch.testing import assert_close

from models.vector.schema import Schema, TensorSpec
from privacy.clipping.sensitivity import UnprovedSensitivityError
from privacy.clipping.settings import ClippingSettings
from privacy.noise.mode import Arrival
from server.aggregation.closing_workers import ClosingWorkers
from server.aggregation.registry import build_rule
from server.aggregation.robust.kept_updates import CHUNK_ELEMENTS, KeptUpdates
from server.aggregation.robust_settings import (
    CohortTooSmallError,
    GeometricMedianSettings,
    KrumSettings,
    MedianSettings,
    RobustSettings,
    TrimmedAttentiveSettings,
    TrimmedMeanSettings,
    check_quorum,
)
from server.aggregation.rule import AggregationRule
from server.aggregation.sensitivity import aggregate_sensitivity
from server.aggregation.settings import AttentiveSettings

LINE = Schema((TensorSpec(name="line", shape=(1,), layer="line"),))
PLANE = Schema((TensorSpec(name="plane", shape=(2,), layer="plane"),))
SCHEMA = Schema(
    (
        TensorSpec(name="first.weight", shape=(3, 4), layer="first"),
        TensorSpec(name="second.bias", shape=(5,), layer="second"),
        TensorSpec(name="first.bias", shape=(4,), layer="first"),
    )
)
# Two chunks and a bit, and a tensor that lies across an edge of chunks.
LONG = Schema(
    (
        TensorSpec(name="weight", shape=(CHUNK_ELEMENTS + 7,), layer="weight"),
        TensorSpec(name="bias", shape=(CHUNK_ELEMENTS + 5,), layer="bias"),
    )
)
RULES: list[RobustSettings] = [
    MedianSettings(),
    TrimmedMeanSettings(trim_share=0.2),
    KrumSettings(attackers=1),
    KrumSettings(attackers=1, kept=3),
    GeometricMedianSettings(),
    TrimmedAttentiveSettings(),
    TrimmedAttentiveSettings(grouping="layer", attention_strength=-1.0),
    TrimmedAttentiveSettings(trim_by="direction", trim_share=0.4),
    TrimmedAttentiveSettings(sybil_cosine=0.3),
    TrimmedAttentiveSettings(trim_by="history", trim_share=0.4, sybil_cosine=0.3),
]
ALL_RULES = pytest.mark.parametrize("rule", RULES, ids=repr)
Stack = NDArray[np.float64]


def rule_of(
    rule: RobustSettings, schema: Schema = SCHEMA, slots: int = 6, clip: float | None = 100.0
) -> AggregationRule:
    return build_rule(rule, schema, slot_count=slots, clipping_norm=clip)


def reduced(
    rule: RobustSettings,
    updates: list[Tensor],
    schema: Schema = SCHEMA,
    clip: float | None = 100.0,
    slots: int | None = None,
) -> Tensor:
    built = rule_of(rule, schema, slots or len(updates), clip)
    for slot, update in enumerate(updates):
        built.add(slot, update, 1 + 1000 * slot)
    return built.result()


def points(*values: float) -> list[Tensor]:
    return [torch.tensor([value]) for value in values]


def drawn(seed: int, count: int, schema: Schema = SCHEMA) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(schema.element_count, generator=generator) for _ in range(count)]


def stacked(updates: list[Tensor]) -> Stack:
    return torch.stack(updates).double().numpy()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (MedianSettings(), 2.0),
        # One of five at either end: (1 + 2 + 3) / 3.
        (TrimmedMeanSettings(trim_share=0.2), 2.0),
        # The two nearest of each: 0, 1, 2, 3 have squares 1+4, 1+1, 1+1, 1+4; the lower slot wins.
        (KrumSettings(attackers=1), 1.0),
        # 1 and 2 have 2, then comes 0 with 5.
        (KrumSettings(attackers=1, kept=2), 1.5),
        # In one dimension every median is a geometric one.
        (GeometricMedianSettings(), 2.0),
        # 1000 goes (clipped to 100, it is furthest from 2), and κ = 0 averages the rest.
        (TrimmedAttentiveSettings(attention_strength=0.0), 1.5),
        # Nobody opposes anybody: (0 + 1 + 2 + 3 + 100) / 5.
        (TrimmedAttentiveSettings(trim_by="direction", attention_strength=0.0), 21.2),
    ],
    ids=repr,
)
def test_one_client_of_five_on_a_line(rule: RobustSettings, expected: float) -> None:
    result = reduced(rule, points(0.0, 1.0, 2.0, 3.0, 1000.0), LINE)

    assert_close(result, torch.tensor([expected]), rtol=1e-5, atol=1e-6)


def test_an_even_cohort_has_the_mean_of_the_middle_two() -> None:
    assert reduced(MedianSettings(), points(9.0, 1.0, 4.0, 2.0), LINE).tolist() == [3.0]


def test_the_geometric_median_of_a_triangle_is_fermats_point() -> None:
    # An equilateral triangle: the centre. Moving one corner outward along its line leaves it there.
    root = math.sqrt(3)
    corners = [(0.0, 2.0), (-root, -1.0), (root, -1.0)]

    for far in (1.0, 20.0):
        updates = [
            torch.tensor([x, y]) * (far if index == 0 else 1)
            for index, (x, y) in enumerate(corners)
        ]
        result = reduced(GeometricMedianSettings(iterations=10_000), updates, PLANE)
        assert_close(result, torch.zeros(2), rtol=0, atol=1e-3)


def _median(stack: Stack) -> Stack:
    return np.asarray(np.median(stack, axis=0))


def _trimmed(stack: Stack) -> Stack:
    return np.asarray(stats.trim_mean(stack, 0.2, axis=0))


def _krum(stack: Stack, kept: int) -> Stack:
    count = len(stack)
    scores = [
        sum(sorted(float(((one - other) ** 2).sum()) for other in stack)[1 : count - 2])
        for one in stack
    ]
    chosen = np.argsort(scores, kind="stable")[:kept]
    return np.asarray(stack[chosen].mean(axis=0))


def _geometric(stack: Stack) -> Stack:
    found = optimize.minimize(
        lambda point: np.linalg.norm(stack - point, axis=1).sum(),
        stack.mean(axis=0),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    return np.asarray(found.x)


STACKED: list[tuple[RobustSettings, Callable[[Stack], Stack], float]] = [
    (MedianSettings(), _median, 1e-6),
    (TrimmedMeanSettings(trim_share=0.2), _trimmed, 1e-6),
    (KrumSettings(attackers=1), lambda stack: _krum(stack, 1), 1e-6),
    (KrumSettings(attackers=1, kept=3), lambda stack: _krum(stack, 3), 1e-6),
    (GeometricMedianSettings(iterations=10_000), _geometric, 1e-3),
]


@pytest.mark.parametrize(
    ("rule", "reference", "tolerance"), STACKED, ids=[repr(rule) for rule, _, _ in STACKED]
)
@given(seed=st.integers(0, 10_000), count=st.integers(6, 12))
@settings(max_examples=10, deadline=None)
def test_chunks_give_what_the_stacked_cohort_gives(
    rule: RobustSettings,
    reference: Callable[[Stack], Stack],
    tolerance: float,
    seed: int,
    count: int,
) -> None:
    updates = drawn(seed, count)

    result = reduced(rule, updates)

    expected = torch.from_numpy(reference(stacked(updates))).float()
    assert_close(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", [RULES[0], RULES[1], RULES[2], RULES[5]], ids=repr)
def test_a_model_of_several_chunks_is_reduced_as_one(rule: RobustSettings) -> None:
    updates = drawn(3, 5, LONG)
    # Far in the last element only: distances must run over all chunks.
    updates[2][-1] += 5000.0
    references: dict[RobustSettings, Callable[[Stack], Stack]] = {
        RULES[0]: _median,
        RULES[1]: _trimmed,
        RULES[2]: lambda stack: _krum(stack, 1),
    }

    result = reduced(rule, updates, LONG, clip=1e4)

    if rule in references:
        expected = references[rule](stacked(updates))
    else:
        expected = _attentive(
            [update for k, update in enumerate(updates) if k != 2], LONG, 0.5, 1e4
        )
    assert_close(result, torch.from_numpy(expected).float(), rtol=1e-5, atol=1e-5)


def test_chunks_are_handed_out_one_of_each_update_at_a_time() -> None:
    updates = drawn(11, 3, LONG)
    kept = KeptUpdates(LONG.element_count)
    for update in updates:
        kept.append(update, 1.0)

    chunks = kept.chunks(ClosingWorkers())
    sizes = [(tuple(rows.shape), rows.untyped_storage().nbytes()) for _, rows in chunks]

    # (2^18 + 7) + (2^18 + 5) elements: two whole chunks and twelve elements.
    assert [shape for shape, _ in sizes] == [(3, CHUNK_ELEMENTS), (3, CHUNK_ELEMENTS), (3, 12)]
    # A slice of a stack would hold the whole stack behind it.
    assert all(size <= 3 * 4 * CHUNK_ELEMENTS for _, size in sizes)


def test_what_was_not_asked_for_yet_is_still_on_disk() -> None:
    kept = KeptUpdates(LONG.element_count)
    for update in drawn(11, 3, LONG):
        kept.append(update, 1.0)
    chunks = kept.chunks(ClosingWorkers())
    next(chunks)

    kept.close()

    with pytest.raises(ValueError, match="closed file"):
        next(chunks)


@pytest.mark.slow
@ALL_RULES
def test_a_rule_holds_one_chunk_of_each_update_at_once(rule: RobustSettings) -> None:
    built = rule_of(rule, LONG, slots=8, clip=1e4)
    for slot, update in enumerate(drawn(11, 8, LONG)):
        built.add(slot, update, 1)

    tracemalloc.start()
    try:
        built.result()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # A chunk of each is 8 MiB, and a piece on its way is there sealed and opened; whole updates
    # would be 16 MiB. Torch's own memory is not traced: less than 8 would mean that rows lie there.
    assert 8 << 20 <= peak_bytes < 12 << 20


def _attentive(updates: list[Tensor], schema: Schema, strength: float, clip: float) -> Stack:
    rule = build_rule(
        AttentiveSettings(attention_strength=strength),
        schema,
        slot_count=len(updates),
        clipping_norm=clip,
    )
    for slot, update in enumerate(updates):
        rule.add(slot, update, 1)
    return rule.result().double().numpy()


def test_trimmed_attentive_is_attention_over_those_who_stay() -> None:
    updates = drawn(5, 10)
    for far in (3, 8):
        updates[far] *= 20

    result = reduced(TrimmedAttentiveSettings(attention_strength=0.4), updates)

    staying = [update for slot, update in enumerate(updates) if slot not in (3, 8)]
    expected = torch.from_numpy(_attentive(staying, SCHEMA, 0.4, 100.0)).float()
    assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_by_direction_only_who_opposes_most_others_goes() -> None:
    # Cosines with the others: of (1, 0) 0, 1, -1, 0, median 0, and (3, 0) has the same; of those
    # upwards 0, 0, 0, 1, median 0; of (-0.1, 0) -1, 0, -1, 0, median -1/2. Length plays no part.
    plane = [(1.0, 0.0), (0.0, 9.0), (3.0, 0.0), (-0.1, 0.0), (0.0, 1.0)]
    updates = [torch.tensor(point) for point in plane]
    rule = TrimmedAttentiveSettings(trim_by="direction", trim_share=0.4, attention_strength=0.0)

    assert reduced(rule, updates, PLANE).tolist() == pytest.approx([1.0, 2.5])


def test_by_direction_at_most_the_share_goes_and_a_tie_keeps_the_lower_slot() -> None:
    # Medians of cosines: three of five point right (1, 1, -1, -1: 0), two left (-1, -1, -1, 1: -1).
    rule = TrimmedAttentiveSettings(trim_by="direction", trim_share=0.2, attention_strength=0.0)

    result = reduced(rule, points(-1.0, 1.0, 2.0, 3.0, -5.0), LINE)

    assert result.tolist() == pytest.approx([1.25])  # (-1 + 1 + 2 + 3) / 4


BY_HISTORY = TrimmedAttentiveSettings(trim_by="history", trim_share=0.4, attention_strength=0.0)


def test_by_history_whoever_opposes_where_the_model_has_been_going_is_left_out() -> None:
    # All but the last point away from most others, or next to nothing along them; what counts is
    # whether they go to the right, as the model did.
    plane = [(1.0, 8.0), (0.5, -9.0), (-0.1, 2.0), (0.0, 3.0), (6.0, 0.0)]
    heading = torch.tensor([0.01, 0.0])

    assert looking_back(plane, heading).tolist() == pytest.approx([7.5 / 4, 0.5])


def test_a_history_that_more_oppose_than_may_go_counts_nothing() -> None:
    # Of these three of five go to the left, but two may go: it is the way so far that is wrong, and
    # medians of cosines count instead. Of (-1, 0) and the like 1, 1, -1, -1: 0; of the others -1.
    plane = [(-1.0, 0.0), (-2.0, 0.0), (-6.0, 0.0), (1.0, 0.0), (9.0, 0.0)]

    assert looking_back(plane, torch.tensor([1.0, 0.0])).tolist() == pytest.approx([-3.0, 0.0])


def test_a_model_that_stood_still_is_opposed_by_nobody() -> None:
    plane = [(-1.0, 0.0), (2.0, 0.0), (5.0, 0.0)]

    assert looking_back(plane, torch.zeros(2)).tolist() == pytest.approx([2.0, 0.0])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_without_a_history_the_cohort_takes_its_place(seed: int) -> None:
    updates = drawn(seed, 7)
    by_direction = TrimmedAttentiveSettings(
        trim_by="direction", trim_share=0.4, attention_strength=0.0
    )

    assert torch.equal(reduced(BY_HISTORY, updates), reduced(by_direction, updates))


def test_a_heading_is_read_by_chunk_like_the_updates() -> None:
    # What all three share lies between: by themselves nobody opposes anybody.
    heading, shared = torch.zeros(LONG.element_count), torch.zeros(LONG.element_count)
    heading[0], heading[-1], shared[1] = 1.0, 1.0, 9.0
    # Along the heading in the first chunk, and more against it in the last.
    mixed = shared.clone()
    mixed[0], mixed[-1] = 1.0, -2.0
    updates = [heading + shared, 3 * heading + shared, mixed]
    rule = TrimmedAttentiveSettings(trim_by="history", trim_share=0.4, attention_strength=0.0)

    built = build_rule(rule, LONG, slot_count=3, clipping_norm=100.0, heading=heading)
    for slot, update in enumerate(updates):
        built.add(slot, update, 1)

    assert torch.equal(built.result(), 2 * heading + shared)


def looking_back(plane: list[tuple[float, float]], heading: Tensor) -> Tensor:
    count = len(plane)
    built = build_rule(BY_HISTORY, PLANE, slot_count=count, clipping_norm=100.0, heading=heading)
    for slot, point in enumerate(plane):
        built.add(slot, torch.tensor(point), 1)
    return built.result()


COPIES = [torch.tensor(point) for point in ((2.0, 0.0), (4.0, 0.0), (0.0, 6.0), (0.0, 0.0))]
FAR = torch.tensor([90.0, 90.0])


@pytest.mark.parametrize(
    ("rule", "updates"),
    [
        (TrimmedAttentiveSettings(trim_share=0.2), [*COPIES, FAR]),
        (TrimmedAttentiveSettings(trim_share=0.25, trim_by="direction"), COPIES),
        (TrimmedAttentiveSettings(trim_share=0.25, trim_by="history"), COPIES),
    ],
    ids=repr,
)
def test_copies_share_one_weight(rule: TrimmedAttentiveSettings, updates: list[Tensor]) -> None:
    # The first two differ in length alone: half a vote each. Zeros are like nobody, and have a vote
    # of their own: (2/2 + 4/2, 6) / 3.
    once = structs.replace(rule, attention_strength=0.0, sybil_cosine=0.9)
    each = structs.replace(rule, attention_strength=0.0)

    assert reduced(once, updates, PLANE).tolist() == pytest.approx([1.0, 2.0])
    assert reduced(each, updates, PLANE).tolist() == pytest.approx([1.5, 1.5])


def test_the_way_so_far_is_nobodys_copy_and_who_is_left_out_still_is() -> None:
    # The first is parallel to the heading and has a vote of its own. The others are alike, and two
    # of them go: those that stay have a quarter each.
    rule = TrimmedAttentiveSettings(
        trim_by="history", trim_share=0.49, attention_strength=0.0, sybil_cosine=0.9
    )
    plane = [(1.0, 0.0), (0.0, 4.0), (0.1, 4.0), (-1.0, 4.0), (-1.0, 4.0)]
    updates = [torch.tensor(point) for point in plane]

    built = build_rule(
        rule, PLANE, slot_count=5, clipping_norm=100.0, heading=torch.tensor([2.0, 0.0])
    )
    for slot, update in enumerate(updates):
        built.add(slot, update, 1)

    assert built.result().tolist() == pytest.approx([(1.0 + 0.025) / 1.5, 2.0 / 1.5])


def test_updates_are_copies_from_the_cosine_on_that_is_set() -> None:
    # cos(45 degrees) = 0.7071.
    updates = [torch.tensor(point) for point in ((1.0, 0.0), (1.0, 1.0), (0.0, 1.0))]

    def shares(alike: float | None) -> list[float]:
        rule = TrimmedAttentiveSettings(
            trim_by="direction", trim_share=0.4, attention_strength=0.0, sybil_cosine=alike
        )
        built = rule_of(rule, PLANE, 3)
        for slot, update in enumerate(updates):
            built.add(slot, update, 1)
        weights = built.weights()
        assert weights is not None
        return [share for (share,) in weights.shares]

    assert shares(None) == pytest.approx([1 / 3] * 3)
    assert shares(0.708) == pytest.approx([1 / 3] * 3)
    # The middle one is like both: 1/3 of a vote beside two halves.
    assert shares(0.707) == pytest.approx([3 / 8, 2 / 8, 3 / 8])


@pytest.mark.parametrize("cosine", [0.0, -0.5, 1.0, 1.1, math.nan])
def test_a_cosine_that_makes_no_sense_is_refused(cosine: float) -> None:
    with pytest.raises(ValueError, match="sybil_cosine must be > 0 and < 1"):
        TrimmedAttentiveSettings(sybil_cosine=cosine)


def test_an_update_of_zeros_opposes_nobody() -> None:
    rule = TrimmedAttentiveSettings(trim_by="direction", trim_share=0.4, attention_strength=0.0)

    assert reduced(rule, points(0.0, 2.0, 4.0, -6.0), LINE).tolist() == pytest.approx([2.0])


def test_an_empty_place_weighs_as_under_attention_and_nothing_elsewhere() -> None:
    # Zero updates weigh e^-κ = 1/2 at κ = ln 2; those at the clip 1: (4 * 1) / (4 + 5 / 2).
    updates = points(*[1.0] * 4, -1.0)
    attentive = TrimmedAttentiveSettings(attention_strength=math.log(2))

    assert reduced(attentive, updates, LINE, 1.0, slots=10).tolist() == pytest.approx([4 / 6.5])
    assert reduced(MedianSettings(), updates, LINE, 1.0, slots=10).tolist() == [1.0]


@pytest.mark.parametrize(
    "rule",
    [
        MedianSettings(),
        TrimmedMeanSettings(trim_share=0.3),
        KrumSettings(attackers=3),
        KrumSettings(attackers=3, kept=5),
        GeometricMedianSettings(),
        TrimmedAttentiveSettings(trim_share=0.3),
        TrimmedAttentiveSettings(trim_share=0.3, trim_by="direction"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1e2, 1e6, 1e15])
def test_as_many_bad_updates_as_are_tolerated_leave_the_result_among_the_good(
    rule: RobustSettings, size: float
) -> None:
    # Seven good ones in a unit box around 1; without a clip, as far away as float32 lets them be.
    generator = torch.Generator().manual_seed(4)
    good = [1 + torch.rand(21, generator=generator) - 0.5 for _ in range(7)]
    bad = [torch.full((21,), -size * (k + 1)) for k in range(3)]
    clip = 1e18 if isinstance(rule, TrimmedAttentiveSettings) else None
    assert rule.tolerated(10) >= 3

    result = reduced(rule, [*bad[:1], *good, *bad[1:]], clip=clip)

    assert float(result.min()) >= 0.45
    assert float(result.max()) <= 1.55


@ALL_RULES
def test_the_clip_is_applied_before_anything_is_compared(rule: RobustSettings) -> None:
    updates = [
        update / update.norm() * (1.0 if slot == 2 else 0.9)
        for slot, update in enumerate(drawn(7, 6))
    ]
    longer = [update * (50.0 if slot == 2 else 1.0) for slot, update in enumerate(updates)]

    clipped = rule_of(rule, slots=6, clip=1.0)
    for slot, update in enumerate(longer):
        clipped.add(slot, update, 1)

    assert clipped.clipped_count == 1
    assert_close(clipped.result(), reduced(rule, updates, clip=1.0), rtol=1e-4, atol=1e-5)


@ALL_RULES
def test_an_unusable_update_changes_nothing(rule: RobustSettings) -> None:
    good = drawn(8, 6)
    attacked = rule_of(rule, slots=7)
    for slot, update in enumerate(good):
        attacked.add(slot, update, 1)

    with pytest.raises(ValueError, match="slot 6: client update must be finite"):
        attacked.add(6, torch.full((21,), math.nan), 1)

    assert attacked.contribution_count == 6
    assert torch.equal(attacked.result(), reduced(rule, good, slots=7))


@ALL_RULES
def test_the_result_ends_the_rule(rule: RobustSettings) -> None:
    built = rule_of(rule)
    for slot, update in enumerate(drawn(9, 6)):
        built.add(slot, update, 1)
    built.result()

    with pytest.raises(ValueError, match="has given its result"):
        built.result()


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (MedianSettings(), 3),
        (TrimmedMeanSettings(trim_share=0.2), 5),
        (TrimmedMeanSettings(trim_share=0.3), 4),
        (KrumSettings(attackers=2), 7),
        (KrumSettings(attackers=2, kept=5), 9),
        (GeometricMedianSettings(), 3),
        (TrimmedAttentiveSettings(trim_share=0.1), 10),
    ],
    ids=repr,
)
def test_a_cohort_that_is_too_small_is_refused_before_the_run_and_in_the_round(
    rule: RobustSettings, least: int
) -> None:
    updates = drawn(10, least - 1)

    check_quorum(rule, least)
    with pytest.raises(CohortTooSmallError, match=f"quorum must be >= {least} for"):
        check_quorum(rule, least - 1)
    with pytest.raises(CohortTooSmallError, match=f"at least {least} updates, got {least - 1}"):
        reduced(rule, updates)


def test_what_is_tolerated_follows_the_cohort() -> None:
    assert [MedianSettings().tolerated(count) for count in (3, 4, 5, 10)] == [1, 1, 2, 4]
    # 0.3 x 10 is 3, though a float says a hair less.
    assert TrimmedMeanSettings(trim_share=0.3).tolerated(10) == 3
    assert KrumSettings(attackers=2).tolerated(100) == 2


@ALL_RULES
def test_no_robust_rule_has_a_proved_sensitivity(rule: RobustSettings) -> None:
    clipping = ClippingSettings(clipping_norm=1.0)

    with pytest.raises(UnprovedSensitivityError, match="no proved bound"):
        aggregate_sensitivity(rule, SCHEMA, clipping, slot_count=10, adjacency="zero-out")


@ALL_RULES
def test_clean_norms_beside_noise_are_refused(rule: RobustSettings) -> None:
    with pytest.raises(ValueError, match='score = "arrived"'):
        build_rule(
            rule,
            SCHEMA,
            slot_count=5,
            clipping_norm=1.0,
            arrival=Arrival.NOISED_WITH_CLEAN_NORMS,
        )


def test_attention_weighs_against_a_clip() -> None:
    with pytest.raises(ValueError, match="needs a clipping_norm"):
        rule_of(TrimmedAttentiveSettings(), clip=None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrimmedMeanSettings(trim_share=0.5), "trim_share must be > 0 and < 0.5"),
        (lambda: TrimmedAttentiveSettings(trim_share=math.nan), "trim_share must be > 0"),
        (lambda: KrumSettings(attackers=-1), "attackers must be >= 0, got -1"),
        (lambda: KrumSettings(attackers=1, kept=0), "kept must be >= 1, got 0"),
        (lambda: GeometricMedianSettings(smoothing=0.0), "smoothing must be > 0"),
        (lambda: GeometricMedianSettings(iterations=0), "iterations must lie in"),
        (lambda: TrimmedAttentiveSettings(attention_strength=51.0), "attention_strength must lie"),
    ],
)
def test_impossible_settings_are_refused(make: Callable[[], RobustSettings], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_below_zero_who_moved_furthest_weighs_least() -> None:
    # κ = -ln 4, C = 1: distances 1 and 0 weigh 1 and 4.
    rule = build_rule(
        AttentiveSettings(attention_strength=-math.log(4)), LINE, slot_count=2, clipping_norm=1.0
    )
    rule.add(0, torch.tensor([1.0]), 1)
    rule.add(1, torch.tensor([0.0]), 1)

    weights = rule.weights()

    assert weights is not None
    assert [row[0] for row in weights.shares] == pytest.approx([0.2, 0.8])
