import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.testing import assert_close

from models.masked.layout import MaskedLayout, masked_layout
from models.vector.schema import Schema
from privacy.clipping.settings import AdaptiveClipping
from privacy.masking.keystream import SEED_BYTES, keystream_sum
from privacy.masking.mask import masked
from privacy.masking.packing import unpack
from privacy.masking.rotation import rotate
from privacy.noise.masked_settings import MaskedNoise
from server.aggregation.robust_settings import MedianSettings
from server.aggregation.settings import AggregationSettings, MeanSettings
from server.closing.close import Closed, Closing
from server.closing.masked_close import MasksDoNotCancelError, close_masked
from server.closing.masked_totals import MaskedTotals, UnmaskedSum
from tests.masked_scene import masked_noise, masked_plan

EQUAL = MeanSettings(weighting="equal", server_step_size=0.5)


def vector(
    layout: MaskedLayout, update: Sequence[float], weight: float = 1.0, fit: float = 0.0
) -> NDArray[np.int64]:
    """Return what a device sends without noise: update in clips, weight, fit, ones."""
    values = np.zeros(layout.noised_count)
    values[: len(update)] = np.array(update) * weight
    values[layout.weights] = layout.weight_entry * weight
    if layout.fit_entry is not None:
        values[-1] = fit * layout.fit_entry
    rotate(values)
    ones = np.ones(layout.element_count - layout.noised_count, np.int64)
    return np.concatenate([np.rint(values / layout.grid.step).astype(np.int64), ones])


def close(
    layout: MaskedLayout,
    groups: Sequence[UnmaskedSum],
    privacy: MaskedNoise,
    *,
    aggregation: AggregationSettings = EQUAL,
    schema: Schema | None = None,
) -> Closed:
    schema = schema or layout.schema
    return close_masked(
        torch.ones(schema.element_count),
        groups,
        layout,
        Closing(
            schema=schema,
            aggregation=aggregation,
            privacy=privacy,
            slot_count=3,
            generator=torch.Generator(),
            round_number=1,
        ),
    )


def summed(layout: MaskedLayout, *vectors: NDArray[np.int64], groups: int = 1) -> list[UnmaskedSum]:
    totals = MaskedTotals(layout, groups)
    for slot, one in enumerate(vectors):
        totals.add(slot, one.astype(np.uint32))
    return totals.unmasked()


def test_three_masked_updates_move_the_model_by_their_mean() -> None:
    privacy = masked_noise(clipping_norm=4.0)
    layout = masked_layout(masked_plan(privacy=privacy))
    # In clips, so times 4: (1, 2), (0, -1) and (2, 2), of mean (1, 1); half a step.
    sums = summed(
        layout,
        vector(layout, (0.25, 0.5)),
        vector(layout, (0.0, -0.25)),
        vector(layout, (0.5, 0.5)),
    )

    closed = close(layout, sums, privacy)

    expected = torch.ones(layout.schema.element_count)
    expected[:2] += 0.5
    # Steps round every element, the weight's and so the divisor too.
    assert_close(closed.parameters, expected, rtol=1e-3, atol=1e-3)
    assert closed.contribution_count == 3
    assert closed.clipped_count is None
    assert closed.aggregation_weights is None


def test_a_heavier_update_moves_the_model_more() -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy))
    sums = summed(layout, vector(layout, (0.5,), 1.0), vector(layout, (-0.5,), 0.25))

    closed = close(layout, sums, privacy)

    # (0.5 - 0.125) / 1.25 = 0.3, and half of that.
    assert float(closed.parameters[0]) == pytest.approx(1.15, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_masks_cancel_and_any_order_ends_in_the_same_bits(order: list[int], seed: int) -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy, cohort_size=6))
    draws = np.random.default_rng(seed)
    seeds = [draws.bytes(SEED_BYTES) for _ in order]
    vectors = [vector(layout, draws.normal(0, 0.1, 5).tolist()) for _ in order]
    bits = layout.grid.bits
    totals = MaskedTotals(layout, 1)
    for slot in order:
        packed = masked(vectors[slot], seeds[slot], bits=bits)
        totals.add(slot, unpack(packed, layout.element_count, bits))

    unmasked = totals.unmasked([keystream_sum(seeds, layout.element_count, bits)])

    assert torch.equal(
        close(layout, unmasked, privacy).parameters,
        close(layout, summed(layout, *vectors), privacy).parameters,
    )


def test_masks_that_do_not_cancel_are_found() -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy))
    packed = [
        masked(vector(layout, (0.5,)), bytes([index]) * SEED_BYTES, bits=layout.grid.bits)
        for index in range(3)
    ]
    totals = MaskedTotals(layout, 1)
    for slot, one in enumerate(packed):
        totals.add(slot, unpack(one, layout.element_count, layout.grid.bits))
    # The third seed is not the one that masked.
    seeds = [bytes([index]) * SEED_BYTES for index in (0, 1, 3)]
    keystreams = keystream_sum(seeds, layout.element_count, layout.grid.bits)

    with pytest.raises(MasksDoNotCancelError, match="the masks did not cancel"):
        close(layout, totals.unmasked([keystreams]), privacy)


def test_a_vector_counted_twice_is_found() -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy))
    (once,) = summed(layout, *[vector(layout, (0.5,))] * 3)

    with pytest.raises(MasksDoNotCancelError):
        close(layout, [UnmaskedSum(once.total, 2)], privacy)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_sum_of_another_length_is_refused(change: int) -> None:
    privacy = masked_noise()
    layout = masked_layout(masked_plan(privacy=privacy))
    total = np.zeros(layout.element_count + change, np.uint32)

    with pytest.raises(ValueError, match="a sum must be uint32 of shape"):
        close(layout, [UnmaskedSum(total, 3)], privacy)


def test_the_next_clipping_norm_follows_those_that_fitted() -> None:
    adaptive = AdaptiveClipping(target_quantile=0.5, step=0.3, count_noise_std=1.0)
    privacy = masked_noise(clipping_norm=2.0, adaptive_clipping=adaptive)
    layout = masked_layout(masked_plan(privacy=privacy))
    assert layout.fit_entry is not None
    # All three fitted: 1 - 1/2 each.
    vectors = [vector(layout, (0.1,), fit=0.5) for _ in range(3)]

    closed = close(layout, summed(layout, *vectors), privacy)

    # C e^(-0.3 * 1.5 / 3).
    assert closed.next_clipping_norm == pytest.approx(2 * math.exp(-0.15), rel=1e-3)


def test_groups_count_alike_whatever_their_size() -> None:
    privacy = masked_noise(groups=2)
    layout = masked_layout(masked_plan(privacy=privacy))
    # Slots 0 and 2 are one group, 1 is the other: means 0.5 and -0.5.
    vectors = [vector(layout, (value,)) for value in (0.25, -0.5, 0.75)]

    closed = close(layout, summed(layout, *vectors, groups=2), privacy)

    assert float(closed.parameters[0]) == pytest.approx(1.0, abs=2e-3)


def test_a_robust_rule_over_groups_lets_one_bad_group_move_nothing() -> None:
    privacy = masked_noise(groups=3)
    layout = masked_layout(masked_plan(privacy=privacy, cohort_size=6, quorum=6))
    honest = [vector(layout, (value,)) for value in (0.25, 0.25, 0.75, 0.75)]
    bad = [vector(layout, (-400.0,))] * 2
    # Slots 0 and 3, 1 and 4, 2 and 5: means 0.25, 0.75 and the attackers'.
    vectors = [honest[0], honest[2], bad[0], honest[1], honest[3], bad[1]]

    median = close(
        layout,
        summed(layout, *vectors, groups=3),
        privacy,
        aggregation=MedianSettings(server_step_size=1.0),
    )

    assert float(median.parameters[0]) == pytest.approx(1.25, abs=2e-3)


def test_another_number_of_groups_is_refused() -> None:
    privacy = masked_noise(groups=2)
    layout = masked_layout(masked_plan(privacy=privacy))

    with pytest.raises(ValueError, match="groups must be 2 sums, got 1"):
        close(layout, summed(layout, *[vector(layout, (0.5,))] * 3), privacy)
