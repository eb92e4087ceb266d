from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.plan.growth_traffic import (
    describe_growth,
    growing_and_fixed_bytes,
    traffic_share,
    traffic_share_of_model,
)
from models.plan.roles import assign_roles
from models.settings.growth import GrowthSettings, layer_count, layer_rounds
from models.settings.model import TransformerLmSettings, schema_of
from models.settings.personalisation import LocalSettings
from models.settings.voice import TransformerTtsSettings

PAPER = GrowthSettings(target_layer_count=6, stage_count=6, round_count=120)


def test_the_paper_trains_420_layer_rounds_and_sends_seven_twelfths() -> None:
    # 20 (1 + 2 + 3 + 4 + 5 + 6) = 420 of 6 x 120 = 720.
    assert layer_rounds(PAPER) == 420
    assert traffic_share(PAPER) == Fraction(7, 12)


def test_the_whole_model_of_the_paper_saves_about_three_eighths() -> None:
    # Six encoder and six decoder blocks, 1,774,464 and 2,366,592 parameters of four bytes, and
    # 2.86 million that never grow: (1 - 7/12) x 24.85 / 27.71 = 0.374.
    blocks = 4 * 6 * (1_774_464 + 2_366_592)

    share = traffic_share_of_model(PAPER, growing_bytes=blocks, fixed_bytes=4 * 2_860_000)

    assert 1 - float(share) == pytest.approx(0.374, abs=5e-4)


@given(
    stages=st.integers(1, 12), layers_a_stage=st.integers(1, 4), rounds_a_stage=st.integers(1, 40)
)
def test_stages_of_equal_length_send_the_share_of_the_formula(
    stages: int, layers_a_stage: int, rounds_a_stage: int
) -> None:
    settings = GrowthSettings(
        target_layer_count=stages * layers_a_stage,
        stage_count=stages,
        round_count=stages * rounds_a_stage,
    )

    assert traffic_share(settings) == Fraction(stages + 1, 2 * stages)


@pytest.mark.parametrize(("growing", "fixed"), [(-1, 2), (2, -1), (0, 0)])
def test_a_model_of_no_size_has_no_share(growing: int, fixed: int) -> None:
    with pytest.raises(ValueError, match=f"got {growing} and {fixed}"):
        traffic_share_of_model(PAPER, growing_bytes=growing, fixed_bytes=fixed)


def test_without_growth_the_share_is_whole() -> None:
    settings = GrowthSettings(target_layer_count=6, stage_count=1, round_count=5)

    assert traffic_share(settings) == 1


def test_the_share_is_that_of_the_models_of_all_rounds_added_up() -> None:
    paper = TransformerTtsSettings()
    sizes = [
        schema_of(
            msgspec.structs.replace(paper, layer_count=layer_count(PAPER, number))
        ).payload_bytes
        for number in range(1, PAPER.round_count + 1)
    ]

    growing, fixed = growing_and_fixed_bytes(paper, schema_of(paper))

    share = traffic_share_of_model(PAPER, growing_bytes=growing, fixed_bytes=fixed)
    assert share == Fraction(sum(sizes), PAPER.round_count * schema_of(paper).payload_bytes)


SMALL = TransformerLmSettings(
    vocabulary_size=10, model_size=4, head_count=1, layer_count=2, feedforward_size=8
)
TWICE = GrowthSettings(target_layer_count=2, stage_count=2, round_count=4)


def test_growth_is_told_with_the_bytes_that_it_saves() -> None:
    one_layer = schema_of(msgspec.structs.replace(SMALL, layer_count=1)).payload_bytes
    both = schema_of(SMALL).payload_bytes

    told = describe_growth(TWICE, SMALL, schema_of(SMALL))

    # Two rounds of each, down and up; of four rounds of both layers.
    moved, whole = 2 * (2 * one_layer + 2 * both), 2 * 4 * both
    assert told == (
        f"2 layers in 2 stages over 4 rounds; a device in all of them moves {moved:,} bytes of "
        f"parameters instead of {whole:,} bytes, {100 - 100 * moved / whole:.1f} % less, "
        "compression aside"
    )


def test_growth_of_a_model_of_which_nothing_travels_saves_nothing() -> None:
    at_home = assign_roles(LocalSettings(), schema_of(SMALL))

    assert describe_growth(TWICE, SMALL, at_home) == "2 layers in 2 stages over 4 rounds"
