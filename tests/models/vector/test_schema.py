"""The schema is what both ends compare before a tensor travels."""

from typing import Any

import pytest

from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.vector.schema import Role, Schema, TensorSpec

WEIGHT = TensorSpec(name="weight", shape=(2, 3), layer="one")
BIAS = TensorSpec(name="bias", shape=(2,), layer="one")
SCALE = TensorSpec(name="scale", shape=(4,), layer="two", role=Role.PERSONAL)
SCHEMA = Schema((WEIGHT, BIAS, SCALE))


def test_tensors_lie_behind_one_another() -> None:
    assert SCHEMA.slices == {"weight": slice(0, 6), "bias": slice(6, 8), "scale": slice(8, 12)}
    assert (SCHEMA.element_count, SCHEMA.payload_bytes) == (12, 48)


def test_tensors_of_some_roles_keep_their_order() -> None:
    assert SCHEMA.with_roles(Role.SHARED) == Schema((WEIGHT, BIAS))
    assert SCHEMA.with_roles(Role.PERSONAL, Role.SHARED) == SCHEMA
    nothing = SCHEMA.with_roles(Role.GENERATED)
    assert (nothing.tensors, nothing.element_count) == ((), 0)


@pytest.mark.parametrize(
    "other",
    [
        Schema((WEIGHT, BIAS)),
        Schema((BIAS, WEIGHT, SCALE)),
        Schema((TensorSpec(name="weights", shape=(2, 3), layer="one"), BIAS, SCALE)),
        Schema((TensorSpec(name="weight", shape=(3, 2), layer="one"), BIAS, SCALE)),
        Schema((TensorSpec(name="weight", shape=(2, 3), layer="two"), BIAS, SCALE)),
        Schema((TensorSpec(name="weight", shape=(2, 3), layer="one", role=Role.PERSONAL), BIAS)),
        Schema((*SCHEMA.tensors, TensorSpec(name="more", shape=(1,), layer="two"))),
    ],
    ids=["missing", "order", "name", "shape", "layer", "role", "unknown"],
)
def test_whatever_differs_changes_the_digest(other: Schema) -> None:
    assert other.sha256 != SCHEMA.sha256
    assert Schema(SCHEMA.tensors).sha256 == SCHEMA.sha256


def test_two_tensors_of_one_name_and_empty_ones_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unique, got \['bias'\]"):
        Schema((BIAS, WEIGHT, BIAS))
    for shape in ((), (2, 0), (-1,)):
        with pytest.raises(ValueError, match="extents >= 1"):
            TensorSpec(name="weight", shape=shape, layer="one")


def test_a_tied_model_has_its_matrix_once() -> None:
    tied, untied = (
        schema_of(GruLmSettings(vocabulary_size=50, hidden_size=4, tied=tied))
        for tied in (True, False)
    )

    # The matrix has 50 rows of 4.
    assert untied.element_count - tied.element_count == 200


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        (GruLmSettings, {"vocabulary_size": 2}, "vocabulary_size must be >= 3, got 2"),
        (GruLmSettings, {"vocabulary_size": 9, "hidden_size": 0}, "hidden_size must be >= 1"),
        (GruLmSettings, {"vocabulary_size": 9, "dropout": 1.0}, "dropout must be in"),
        (GruLmSettings, {"vocabulary_size": 9, "dropout": float("nan")}, "dropout must be in"),
        (TransformerLmSettings, {"vocabulary_size": 9, "model_size": 30}, "multiple of head_count"),
        (TransformerLmSettings, {"vocabulary_size": 9, "layer_count": 0}, "layer_count must be"),
    ],
)
def test_settings_that_make_no_model_are_refused(
    family: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        family(**settings)
