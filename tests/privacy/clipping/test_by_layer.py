import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from privacy.clipping.by_layer import clip_update
from privacy.clipping.clip import UnusableUpdateError, clip
from privacy.clipping.settings import ClippingSettings

TENSORS = (slice(0, 2), slice(2, 3), slice(3, 5))


def per_layer(clipping_norm: float, *ratios: float) -> ClippingSettings:
    return ClippingSettings(
        clipping_norm=clipping_norm, clipping="per-layer", layer_ratios=tuple(ratios)
    )


def test_each_tensor_is_scaled_to_its_own_clip() -> None:
    # Norms 5, 1 and 13 against clips of 1, 1 and 1: sqrt(3) shared out alike.
    update = torch.tensor([3.0, 4.0, -1.0, 5.0, 12.0])

    clipped = clip_update(update, per_layer(math.sqrt(3)), TENSORS)

    expected = torch.tensor([0.6, 0.8, -1.0, 5 / 13, 12 / 13])
    assert_close(clipped.values, expected, atol=2e-6, rtol=0)
    assert clipped.norm == pytest.approx(math.sqrt(25 + 1 + 169))
    assert not clipped.has_fitted
    assert update.tolist() == [3.0, 4.0, -1.0, 5.0, 12.0]


def test_a_flat_clip_scales_the_whole_update() -> None:
    update = torch.tensor([3.0, 4.0, 0.0, 0.0, 12.0])

    clipped = clip_update(update, ClippingSettings(clipping_norm=1.0), TENSORS)

    assert torch.equal(clipped.values, clip(update, 1.0)[0])
    assert clipped.norm == pytest.approx(13.0)
    assert not clipped.has_fitted


@pytest.mark.parametrize(
    "settings", [ClippingSettings(clipping_norm=1.0), ClippingSettings(), per_layer(1.0)]
)
def test_a_zero_update_fits_and_stays_itself(settings: ClippingSettings) -> None:
    update = torch.zeros(5)

    clipped = clip_update(update, settings, TENSORS)

    assert clipped.values is update
    assert clipped.norm == 0.0
    assert clipped.has_fitted


def test_an_update_at_its_clips_is_handed_back_untouched() -> None:
    update = torch.tensor([3.0, 4.0, -1.0, 5.0, 12.0])

    clipped = clip_update(update, per_layer(math.sqrt(195) * 1.000001, 5.0, 1.0, 13.0), TENSORS)

    assert clipped.values is update
    assert clipped.has_fitted


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_refused_not_scaled(value: float) -> None:
    update = torch.tensor([3.0, 4.0, value, 5.0, 12.0])

    for settings in (per_layer(1.0), ClippingSettings(clipping_norm=1.0)):
        with pytest.raises(UnusableUpdateError, match="holds NaN or infinity"):
            clip_update(update, settings, TENSORS)


@given(seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6), clipping_norm=st.floats(1e-3, 1e3))
def test_what_is_clipped_fits_tensor_by_tensor_and_as_a_whole(
    seed: int, scale: float, clipping_norm: float
) -> None:
    update = torch.randn(5, generator=torch.Generator().manual_seed(seed)) * scale
    settings = per_layer(clipping_norm, 1.0, 2.0, 3.0)

    clipped = clip_update(update, settings, TENSORS).values

    norms = [float(np.linalg.norm(clipped[where].double().numpy())) for where in TENSORS]
    limits = settings.tensor_clips(3)
    assert limits is not None
    assert all(norm <= limit for norm, limit in zip(norms, limits, strict=True))
    assert math.hypot(*norms) <= clipping_norm
    assert clip_update(clipped, settings, TENSORS).has_fitted
