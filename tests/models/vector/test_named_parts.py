import pytest

from models.settings.image import VitSettings
from models.settings.model import (
    GruLmSettings,
    ModelSettings,
    TransformerLmSettings,
    schema_of,
)
from models.vector.named_parts import MissingPartError, Part, belongs, part_names

VIT = VitSettings(class_count=10, layer_count=2)


def names(settings: ModelSettings, part: Part) -> tuple[str, ...]:
    return part_names(schema_of(settings), part, method="asked")


def test_the_projections_of_a_transformer_are_its_qkv_matrices() -> None:
    expected = ("blocks.0.attention.to_qkv.weight", "blocks.1.attention.to_qkv.weight")

    assert names(VIT, Part.PROJECTION) == expected
    assert names(TransformerLmSettings(vocabulary_size=9), Part.PROJECTION) == expected


def test_a_head_is_the_last_layer() -> None:
    assert names(VIT, Part.HEAD) == ("head.weight", "head.bias")
    assert names(TransformerLmSettings(vocabulary_size=9, tied=False), Part.HEAD) == (
        "output.weight",
        "output.bias",
    )


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("blocks.3.attention.to_q.weight", Part.PROJECTION, True),
        ("blocks.3.attention.to_v.weight", Part.PROJECTION, True),
        ("blocks.3.attention.to_out.weight", Part.PROJECTION, False),
        ("blocks.3.attention.onto_q.weight", Part.PROJECTION, False),
        ("head_norm.weight", Part.HEAD, False),
        ("blocks.0.head.weight", Part.HEAD, False),
        ("batch_norm2.running_var", Part.BATCH_NORM, True),
        ("batch_norm.batch_count", Part.BATCH_NORM, True),
        ("block.first_batch_norm.weight", Part.BATCH_NORM, True),
        ("batch_norm_after.weight", Part.BATCH_NORM, False),
    ],
)
def test_a_part_is_known_by_name(name: str, part: Part, expected: bool) -> None:
    assert belongs(name, part) is expected


@pytest.mark.parametrize(
    ("settings", "part", "says"),
    [
        (GruLmSettings(vocabulary_size=9), Part.PROJECTION, '"asked" needs a model with a proj'),
        (VIT, Part.BATCH_NORM, "with a batch norm, this one has none; choose a convnet"),
        (GruLmSettings(vocabulary_size=9), Part.HEAD, "bias alone; set tied = false"),
    ],
)
def test_a_model_without_the_part_is_refused(
    settings: ModelSettings, part: Part, says: str
) -> None:
    with pytest.raises(MissingPartError, match=says):
        names(settings, part)
