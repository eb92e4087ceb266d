import math
from typing import Any

import msgspec
import pytest

from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.settings import PrivacySettings, noises_sums

COMMON = {
    "clipping_norm": 1.0,
    "noise_multiplier": 1.1,
    "delta": 1e-6,
    "epsilon_budget": 8.0,
}
WHOLE: dict[str, dict[str, Any]] = {
    "local": {"mode": "local", **COMMON},
    "central": {"mode": "central", **COMMON, "adjacency": "zero-out"},
    "ftrl": {
        "mode": "ftrl",
        **COMMON,
        "adjacency": "zero-out",
        "min_separation": 3,
        "max_participation": 2,
    },
}


def read(tables: dict[str, Any]) -> PrivacySettings:
    settings: PrivacySettings = msgspec.convert(tables, PrivacySettings, strict=True)
    return settings


@pytest.mark.parametrize(
    ("mode", "name"), [(mode, name) for mode in WHOLE for name in WHOLE[mode] if name != "mode"]
)
def test_no_value_that_decides_the_guarantee_has_a_default(mode: str, name: str) -> None:
    tables = {key: value for key, value in WHOLE[mode].items() if key != name}

    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{name}`"):
        read(tables)


@pytest.mark.parametrize("mode", ["central", "ftrl"])
def test_settings_that_say_nothing_of_sums_are_written_as_they_were(mode: str) -> None:
    encoded = msgspec.json.encode(read(WHOLE[mode]), order="deterministic")

    # An earlier device refuses a key that it does not know.
    assert b"noise_on" not in encoded
    assert not noises_sums(read(WHOLE[mode]))
    assert not noises_sums(read({**WHOLE[mode], "noise_on": "mean"}))


@pytest.mark.parametrize("mode", ["central", "ftrl"])
def test_noise_on_sums_is_told_wherever_settings_are(mode: str) -> None:
    settings = read({**WHOLE[mode], "noise_on": "sums"})

    assert noises_sums(settings)
    assert b'"noise_on":"sums"' in msgspec.json.encode(settings)
    assert "sensitivity of the sums of updates and of weights" in settings.guarantee


@pytest.mark.parametrize("mode", WHOLE)
@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_guarantees_nothing_is_refused(mode: str, name: str, bad: float) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"{name} must be"):
        read(WHOLE[mode] | {name: bad})


@pytest.mark.parametrize("name", ["min_separation", "max_participation", "restart_rounds"])
def test_limits_on_participation_are_counts(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"{name} must be >= 1, got 0"):
        read(WHOLE["ftrl"] | {name: 0})


BUFFERED = WHOLE["ftrl"] | {
    "mechanism": "blt",
    "buffer_decays": [0.9, 0.5],
    "buffer_scales": [0.2, 0.25],
}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (WHOLE["ftrl"] | {"mechanism": "banded"}, "Invalid enum value 'banded'"),
        (WHOLE["ftrl"] | {"mechanism": "blt"}, "needs buffer_decays and buffer_scales"),
        (BUFFERED | {"mechanism": "tree"}, 'belong to mechanism = "blt"'),
        (WHOLE["ftrl"] | {"buffer_decays": [0.9]}, 'belong to mechanism = "blt"'),
        (BUFFERED | {"restart_rounds": 4}, 'restart_rounds belongs to mechanism = "tree"'),
        (BUFFERED | {"buffer_decays": [0.9, 1.0]}, r"buffer_decays must lie in \(0, 1\), got 1.0"),
        (BUFFERED | {"buffer_scales": [0.2, -0.1]}, "buffer_scales must be > 0"),
        (BUFFERED | {"buffer_scales": [0.2, 0.9]}, "buffer_scales must sum to at most 1"),
        (BUFFERED | {"buffer_scales": [0.2]}, "as many as buffer_decays, 2, got 1"),
        (BUFFERED | {"buffer_decays": [0.5] * 6}, "1 to 5 numbers, got 6"),
    ],
)
def test_a_mechanism_that_cannot_be_accounted_for_is_refused(
    tables: dict[str, Any], words: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        read(tables)


def test_a_tree_is_encoded_as_it_was_before_there_was_another_mechanism() -> None:
    # Plans reach older devices, and a run's sealed secret opens by the digest of its settings.
    assert set(msgspec.to_builtins(read(WHOLE["ftrl"]))) == {
        *WHOLE["ftrl"],
        "clipping",
        "layer_ratios",
        "restart_rounds",
    }


def test_buffers_come_back_from_a_plan() -> None:
    settings = read(BUFFERED)

    again = msgspec.json.decode(msgspec.json.encode(settings), type=PrivacySettings, strict=True)
    assert again == settings
    assert "noise through 2 buffers of 1.1 times the sensitivity" in settings.guarantee


@pytest.mark.parametrize("mode", WHOLE)
def test_every_mode_with_a_bound_states_unit_budget_and_neighbours(mode: str) -> None:
    settings = read(WHOLE[mode])

    assert settings.guarantees_privacy
    assert settings.guarantee.startswith(
        f"{mode}: (8, 1e-06)-differential privacy for one person over the whole run"
    )
    assert "neighbours " in settings.guarantee


def test_local_says_what_it_does_to_a_model() -> None:
    settings = LocalNoise(clipping_norm=2.0, noise_multiplier=3.0, delta=1e-6, epsilon_budget=1.0)

    # 3 * 2 * 2 = 12.
    assert "N(0, 12^2)" in settings.guarantee
    assert "destroys models of this size" in settings.guarantee


def test_central_says_what_the_coordinator_sees() -> None:
    settings = msgspec.convert(WHOLE["central"], CentralNoise)

    assert "coordinator itself sees clipped updates" in settings.guarantee


def test_a_restart_begins_the_next_tree_at_its_first_leaf() -> None:
    settings = msgspec.convert(WHOLE["ftrl"] | {"restart_rounds": 4}, TreeNoise)
    one_tree = msgspec.convert(WHOLE["ftrl"], TreeNoise)

    assert [settings.place_in_tree(number) for number in (1, 4, 5, 8, 9)] == [
        (0, 1),
        (0, 4),
        (1, 1),
        (1, 4),
        (2, 1),
    ]
    assert one_tree.place_in_tree(9) == (0, 9)
