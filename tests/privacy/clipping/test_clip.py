import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from privacy.clipping.clip import (
    UnusableUpdateError,
    check_finite,
    clip,
    clipping_factor,
    l2_norm,
    tensor_norms,
)


def test_a_short_update_keeps_its_direction_and_gets_the_norm_allowed() -> None:
    # |(3, 4)| = 5, so a limit of 1 gives (0.6, 0.8).
    clipped, norm = clip(torch.tensor([3.0, 4.0]), 1.0)

    assert norm == 5.0
    assert_close(clipped, torch.tensor([0.6, 0.8]), atol=2e-6, rtol=0)


def test_an_update_within_the_limit_is_handed_back_untouched() -> None:
    update = torch.tensor([3.0, 4.0])

    clipped, norm = clip(update, 5.0)

    assert clipped is update
    assert norm == 5.0


def test_without_a_limit_nothing_is_scaled() -> None:
    update = torch.tensor([3e9, 4e9])

    clipped, norm = clip(update, None)

    assert clipped is update
    assert norm == 5e9


def test_a_zero_update_stays_zero() -> None:
    clipped, norm = clip(torch.zeros(5000), 0.1)

    assert norm == 0.0
    assert not clipped.any()


@pytest.mark.parametrize("clipping_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_none_is_refused(clipping_norm: float) -> None:
    with pytest.raises(ValueError, match="clipping_norm must be > 0 and finite"):
        clip(torch.ones(3), clipping_norm)


@given(
    size=st.integers(1, 9000),
    scale=st.floats(1e-6, 1e6),
    clipping_norm=st.floats(1e-3, 1e3),
    seed=st.integers(0, 1000),
)
def test_what_is_clipped_is_never_clipped_again(
    size: int, scale: float, clipping_norm: float, seed: int
) -> None:
    update = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale

    clipped, _ = clip(update, clipping_norm)

    assert np.linalg.norm(clipped.double().numpy()) <= clipping_norm
    assert clipping_factor(l2_norm(clipped), clipping_norm) == 1.0


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 100_003, 1_300_000])
def test_the_norm_agrees_with_float64(size: int) -> None:
    vector = torch.randn(size, generator=torch.Generator().manual_seed(size))

    assert l2_norm(vector) == pytest.approx(np.linalg.norm(vector.double().numpy()), rel=1e-7)


def test_the_norm_does_not_depend_on_the_number_of_threads() -> None:
    vector = torch.randn(3_000_001, generator=torch.Generator().manual_seed(1))
    before = torch.get_num_threads()

    norms = set()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        norms.add(l2_norm(vector))
    torch.set_num_threads(before)

    assert len(norms) == 1


@pytest.mark.parametrize("place", [0, 2047, 2048, 4999])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_found_anywhere(place: int, value: float) -> None:
    update = torch.zeros(5000)
    update[place] = value

    with pytest.raises(UnusableUpdateError, match="holds NaN or infinity"):
        check_finite(update)


def test_squares_beyond_float32_are_summed_in_float64() -> None:
    # |(3e38, 0, ..., 1e38)|: 9e76 + 1e76 = 1e77 under the root, far above float32.
    vector = torch.zeros(5000)
    vector[0], vector[4999] = 3e38, 1e38

    assert l2_norm(vector) == pytest.approx(math.sqrt(1e77), rel=1e-6)


def test_an_update_too_large_to_sum_is_refused_by_its_norm() -> None:
    with pytest.raises(UnusableUpdateError, match=r"L2 norm <= 1e\+18, got 1e\+38"):
        check_finite(torch.tensor([1e38]))


def test_tensor_norms_are_those_of_each_range() -> None:
    update = torch.tensor([3.0, 4.0, 0.0, 5.0, 12.0])

    norms = tensor_norms(update, [slice(0, 2), slice(2, 3), slice(3, 5)])

    assert norms == [5.0, 0.0, 13.0]


def test_tensors_that_are_each_usable_can_be_too_large_together() -> None:
    update = torch.full((4,), 8e17)

    with pytest.raises(UnusableUpdateError, match="L2 norm"):
        tensor_norms(update, [slice(index, index + 1) for index in range(4)])
