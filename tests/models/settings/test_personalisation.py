from typing import Any

import msgspec
import pytest

from models.settings.personalisation import (
    FedProxSettings,
    GlobalSettings,
    NeighbourSettings,
    PersonalisationSettings,
)


def read(table: dict[str, Any]) -> PersonalisationSettings:
    settings: PersonalisationSettings = msgspec.convert(table, PersonalisationSettings)
    return settings


def test_the_method_picks_the_settings() -> None:
    assert read({"method": "global"}) == GlobalSettings()
    assert read({"method": "fedprox", "proximal_strength": 0.5}) == FedProxSettings(
        proximal_strength=0.5
    )
    assert read({"method": "pfedme"}).method == "pfedme"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"method": "magic"}, "Invalid value 'magic'"),
        ({"method": "global", "proximal_strength": 1.0}, "unknown field"),
        ({"method": "fedprox", "proximal_strength": 0.0}, "must be > 0 and finite, got 0.0"),
        ({"method": "ditto", "proximal_strength": float("nan")}, "got nan"),
        ({"method": "pfedme", "inner_steps": 0}, "inner_steps must be >= 1, got 0"),
        ({"method": "pfedgp", "inner_steps": 0}, "inner_steps must be >= 1, got 0"),
        ({"method": "fedtp", "hypernetwork": {"momentum": 1.0}}, r"momentum must be in \[0, 1\)"),
        ({"method": "fedtp", "neighbours": {"share": 1.5}}, r"share must be in \[0, 1\], got 1.5"),
        (
            {"method": "fedtp", "head": "balanced", "neighbours": {}},
            'head = "shared" or "personal", got "balanced"',
        ),
        ({"method": "pfedgp", "gaussian_process": {"jitter": 0.0}}, "jitter must be > 0"),
        ({"method": "fedrod", "personal_learning_rate": -1.0}, "personal_learning_rate must be"),
    ],
)
def test_settings_out_of_range_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        read(table)


def test_the_neighbours_of_the_paper_are_the_default() -> None:
    # k = 10 and p = 0.6·kNN + 0.4·softmax.
    assert NeighbourSettings() == NeighbourSettings(count=10, share=0.6, capacity=1.0)
