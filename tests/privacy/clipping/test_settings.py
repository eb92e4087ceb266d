import math
from typing import Any

import msgspec
import pytest

from privacy.clipping.settings import AdaptiveClipping, ClippingSettings
from privacy.noise.settings import NoNoise, PrivacySettings


def test_one_number_is_shared_out_alike() -> None:
    clips = ClippingSettings(clipping_norm=6.0, clipping="per-layer").tensor_clips(4)

    # 6 / sqrt(4)
    assert clips == pytest.approx((3.0, 3.0, 3.0, 3.0))


def test_ratios_share_out_the_same_total() -> None:
    settings = ClippingSettings(
        clipping_norm=10.0, clipping="per-layer", layer_ratios=(3.0, 4.0, 12.0)
    )

    clips = settings.tensor_clips(3)

    # |(3, 4, 12)| = 13
    assert clips == pytest.approx((30 / 13, 40 / 13, 120 / 13))
    assert clips is not None
    assert math.hypot(*clips) == pytest.approx(10.0)


def test_a_flat_clip_has_no_parts() -> None:
    assert ClippingSettings(clipping_norm=1.0).tensor_clips(4) is None
    assert ClippingSettings().tensor_clips(4) is None


def test_ratios_of_another_model_are_refused() -> None:
    settings = ClippingSettings(clipping_norm=1.0, clipping="per-layer", layer_ratios=(1.0, 2.0))

    with pytest.raises(ValueError, match="one a tensor, 3 for this model, got 2"):
        settings.tensor_clips(3)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"clipping": "per-layer"}, 'clipping = "per-layer" shares out a clipping_norm'),
        (
            {"clipping_norm": 1.0, "layer_ratios": [1.0]},
            'layer_ratios needs clipping = "per-layer"',
        ),
        (
            {"clipping_norm": 1.0, "clipping": "per-layer", "layer_ratios": [1.0, 0.0]},
            "layer_ratios must be > 0 and finite, got 0.0",
        ),
        ({"clipping_norm": 1.0, "clipping": "per-tensor"}, "Invalid enum value 'per-tensor'"),
        ({"adaptive_clipping": {"count_noise_std": 1.0}}, "needs a clipping_norm to start from"),
        (
            {"clipping_norm": 1.0, "adaptive_clipping": {}},
            "missing required field `count_noise_std`",
        ),
        (
            {"clipping_norm": 4.0, "adaptive_clipping": {"count_noise_std": 1.0, "largest": 3.0}},
            "clipping_norm must be <= adaptive_clipping.largest 3.0, got 4.0",
        ),
    ],
)
def test_clipping_that_cannot_be_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=told):
        msgspec.convert({"mode": "none", **settings}, PrivacySettings)


def test_a_mode_whose_updates_arrive_with_noise_cannot_adapt() -> None:
    toml = {
        "mode": "paper",
        "randomisation_magnitude": 0.1,
        "clipping_norm": 1.0,
        "adaptive_clipping": {"count_noise_std": 1.0},
    }

    with pytest.raises(msgspec.ValidationError, match="unknown field `adaptive_clipping`"):
        msgspec.convert(toml, PrivacySettings)


@pytest.mark.parametrize(
    ("setting", "value", "rule"),
    [
        ("target_quantile", 0.0, r"lie in \(0, 1\)"),
        ("target_quantile", 1.0, r"lie in \(0, 1\)"),
        ("target_quantile", math.nan, r"lie in \(0, 1\)"),
        ("step", 0.0, "> 0 and finite"),
        ("step", math.inf, "> 0 and finite"),
        ("count_noise_std", -1.0, ">= 0 and finite"),
        ("count_noise_std", math.nan, ">= 0 and finite"),
        ("largest", 0.0, "> 0 and finite"),
    ],
)
def test_each_adaptive_setting_has_its_range(setting: str, value: float, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must (be )?{rule}, got {value}"):
        AdaptiveClipping(**{"count_noise_std": 1.0, setting: value})


def test_settings_made_in_code_are_checked_too() -> None:
    with pytest.raises(ValueError, match="clipping_norm must be > 0 and finite, got nan"):
        NoNoise(clipping_norm=math.nan)
