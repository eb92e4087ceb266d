"""The plans of a model that grows: one for each stage, and none that names layers it lacks."""

from typing import Any

import msgspec
import pytest

from models.plan.plan import PlanError, decode_plan, plan_schema
from models.plan.stages import (
    describe_stage,
    earlier_stages,
    next_stage,
    plan_at_stage,
    plan_of_round,
)
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.growing_layers import check_growth, growing_layers
from models.settings.growth import GrowthSettings
from models.settings.image import ConvNetSettings
from models.settings.model import GruLmSettings, ModelSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.vector.seeds import client_seed, growth_seed
from tests.edge_client.training_plan import make_plan
from tests.models.growing import MODEL, growing_plan


def growth(**changes: Any) -> GrowthSettings:
    return GrowthSettings(
        **{"target_layer_count": 3, "stage_count": 3, "round_count": 6, **changes}
    )


def test_a_plan_carries_its_stage_and_the_model_as_it_is_then() -> None:
    plans = [growing_plan(stage) for stage in (1, 2, 3)]

    assert [plan.model for plan in plans] == [
        msgspec.structs.replace(MODEL, layer_count=count) for count in (1, 2, 3)
    ]
    assert [plan.growth_stage for plan in plans] == [1, 2, 3]
    # A block has 11: two of each norm, qkv, two of the output, four of the feed-forward network.
    counts = [len(plan_schema(plan).tensors) for plan in plans]
    assert counts[1] - counts[0] == counts[2] - counts[1] == 11
    assert len({plan.schema_sha256 for plan in plans}) == 3
    for plan in plans:
        assert plan.schema_sha256 == plan_schema(plan).sha256.hex()
        assert decode_plan(plan.encode()) == plan


def test_rounds_have_the_plans_of_their_stages() -> None:
    first = growing_plan(1)

    assert [plan_of_round(first, number).growth_stage for number in range(1, 8)] == [
        *(1, 1, 2, 2, 3, 3, 3)
    ]
    assert list(earlier_stages(growing_plan(3))) == [growing_plan(2), first]
    assert next_stage(first, 2) is None
    assert next_stage(first, 5) == growing_plan(2)
    with pytest.raises(ValueError, match="growth_stage must not fall, got 1 for round 2 after 3"):
        next_stage(growing_plan(3), 2)


def test_a_plan_without_growth_is_that_of_every_round() -> None:
    plan = make_plan()

    assert plan_of_round(plan, 9) is plan
    assert next_stage(plan, 9) is None
    assert not list(earlier_stages(plan))
    with pytest.raises(ValueError, match="growth must be set for a plan of stage 1"):
        plan_at_stage(plan, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"growth_stage": 4}, r"growth_stage must be in \[1, 3\], got 4"),
        ({"growth_stage": 1}, r"model.layer_count must be 1 in growth_stage 1, got 3"),
        ({"growth_stage": None}, "growth and growth_stage belong together"),
        ({"growth": None}, "growth and growth_stage belong together"),
    ],
)
def test_a_plan_beyond_its_target_or_with_other_layers_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    fields = {**msgspec.json.decode(growing_plan(3).encode()), **changes}

    with pytest.raises(PlanError, match=message):
        decode_plan(msgspec.json.encode(fields))


@pytest.mark.parametrize(
    "model",
    [
        GruLmSettings(vocabulary_size=20),
        CharLstmSettings(layer_count=3),
        ConvNetSettings(class_count=2),
    ],
)
def test_a_family_without_residual_layers_does_not_grow(model: ModelSettings) -> None:
    family = type(model).__struct_config__.tag

    with pytest.raises(ValueError, match=f'"{family}" has none: a new layer would replace'):
        growing_layers(model)


@pytest.mark.parametrize(
    "model",
    [
        CharTransformerSettings(layer_count=3),
        Seq2SeqSettings(symbol_count=9, encoder_layer_count=3, decoder_layer_count=3),
    ],
)
def test_norms_behind_the_residuals_cannot_be_passed_unchanged(model: ModelSettings) -> None:
    check_growth(model, growth(start="random"))

    with pytest.raises(ValueError, match=r'growth.start must be "random" for family'):
        check_growth(model, growth())


def test_the_last_stage_is_the_whole_model() -> None:
    check_growth(MODEL, growth())

    with pytest.raises(ValueError, match=r"must be model.layer_count 3, got 4: the last stage"):
        check_growth(MODEL, growth(target_layer_count=4, stage_count=2))
    uneven = Seq2SeqSettings(symbol_count=9, encoder_layer_count=3, decoder_layer_count=6)
    with pytest.raises(ValueError, match=r"must be model.decoder_layer_count 6, got 3"):
        check_growth(uneven, growth(start="random"))


def test_a_stage_is_told_in_words() -> None:
    settings = growth(target_layer_count=6)

    assert describe_stage(settings, 2) == "stage 2 of 3: 4 of 6 layers"


def test_stages_and_clients_never_share_a_seed() -> None:
    seeds = {growth_seed(7, stage) for stage in range(2, 8)}
    seeds |= {client_seed(7, stage, "growth") for stage in range(2, 8)}

    assert len(seeds) == 12
    assert growth_seed(8, 2) not in seeds
