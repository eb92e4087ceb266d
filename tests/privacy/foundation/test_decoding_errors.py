"""A refused setting is told with what may stand in its place."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from privacy.foundation.decoding_errors import explained


class Mean(msgspec.Struct, tag="mean", tag_field="rule", forbid_unknown_fields=True):
    weighting: Literal["examples", "equal"] = "examples"


class Krum(msgspec.Struct, tag="krum", tag_field="rule", forbid_unknown_fields=True):
    attackers: int
    norm: Literal["l1", "l2"] | None = None


class Part(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["small", "large"]


class Settings(msgspec.Struct, forbid_unknown_fields=True, rename={"rate": "learning_rate"}):
    aggregation: Mean | Krum
    rate: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    parts: list[Part] = []
    named: dict[str, Part] = {}


def told(**tables: Any) -> str:
    given = {"aggregation": {"rule": "mean"}} | tables
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, Settings, strict=True)
    return explained(refused.value, given, Settings)


@pytest.mark.parametrize(
    ("tables", "remedy"),
    [
        ({"learning_rte": 1.0}, "did you mean learning_rate?"),
        ({"zzz": 1}, "there are aggregation, learning_rate, named, parts"),
        ({"aggregation": {"rule": "krumm"}}, "it must be one of mean, krum"),
        (
            {"aggregation": {"rule": "mean", "weighting": "size"}},
            "it must be one of equal, examples",
        ),
        ({"aggregation": {"rule": "krum", "attackers": 1, "norm": "l3"}}, "one of l1, l2"),
        # The other rule's settings are none of this one's.
        ({"aggregation": {"rule": "mean", "attackers": 1}}, "there are weighting"),
        ({"parts": [{"kind": "small"}, {"kind": "smal"}]}, "it must be one of large, small"),
    ],
)
def test_what_is_allowed_stands_in_the_message(tables: dict[str, Any], remedy: str) -> None:
    assert told(**tables).endswith(remedy)


@pytest.mark.parametrize(
    "tables",
    [{"learning_rate": -1.0}, {"learning_rate": "fast"}, {"named": {"a": {"kind": "smal"}}}],
)
def test_a_message_without_a_list_stays_as_it_is(tables: dict[str, Any]) -> None:
    given = {"aggregation": {"rule": "mean"}} | tables
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(given, Settings, strict=True)

    assert explained(refused.value, given, Settings) == str(refused.value)
