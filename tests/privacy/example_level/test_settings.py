"""What decides the privacy of examples has no default and no impossible value."""

import math
from typing import Any

import msgspec
import pytest

from privacy.example_level.settings import ExampleEvent, ExamplePrivacySettings

VALUES: dict[str, Any] = {
    "clipping_norm": 0.5,
    "noise_multiplier": 1.0,
    "sampling_rate": 0.05,
    "delta": 1e-5,
}


@pytest.mark.parametrize("missing", VALUES)
def test_nothing_has_a_default(missing: str) -> None:
    given = {name: value for name, value in VALUES.items() if name != missing}

    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.convert(given, ExamplePrivacySettings)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", VALUES)
def test_impossible_values_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        ExamplePrivacySettings(**VALUES | {name: value})


@pytest.mark.parametrize(("name", "value"), [("sampling_rate", 1.01), ("delta", 1.0)])
def test_probabilities_end_at_one(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        ExamplePrivacySettings(**VALUES | {name: value})


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="nosie"):
        msgspec.convert(VALUES | {"nosie": 1.0}, ExamplePrivacySettings)


@pytest.mark.parametrize(
    ("sampling_rate", "local_epochs", "step_count"), [(0.05, 1, 20), (0.05, 3, 60), (1.0, 2, 2)]
)
def test_a_round_draws_each_example_once_an_epoch_on_average(
    sampling_rate: float, local_epochs: int, step_count: int
) -> None:
    settings = ExamplePrivacySettings(**VALUES | {"sampling_rate": sampling_rate})

    assert settings.step_count(local_epochs) == step_count
    assert settings.event(local_epochs) == ExampleEvent(
        noise_multiplier=1.0, sampling_rate=sampling_rate, step_count=step_count
    )


def test_an_event_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="step_count"):
        ExampleEvent(noise_multiplier=1.0, sampling_rate=0.1, step_count=0)
