import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.settings.growth import (
    GrowthSettings,
    growth_rounds,
    growth_stage,
    layer_count,
    layer_count_of_stage,
)

PAPER = GrowthSettings(target_layer_count=6, stage_count=6, round_count=120)


@st.composite
def schedules(draw: st.DrawFn) -> GrowthSettings:
    stages = draw(st.integers(1, 8))
    return GrowthSettings(
        target_layer_count=stages * draw(st.integers(1, 4)),
        stage_count=stages,
        round_count=draw(st.integers(stages, 200)),
    )


def test_the_paper_adds_a_layer_every_twenty_rounds() -> None:
    counts = [layer_count(PAPER, round_number) for round_number in range(1, 121)]

    assert counts == [layers for layers in range(1, 7) for _ in range(20)]
    assert list(growth_rounds(PAPER)) == [21, 41, 61, 81, 101]


@given(schedules())
def test_layers_only_grow_every_stage_has_its_rounds_and_the_last_round_is_full(
    settings: GrowthSettings,
) -> None:
    stages = [growth_stage(settings, number) for number in range(1, settings.round_count + 1)]
    lengths = [stages.count(stage) for stage in range(1, settings.stage_count + 1)]

    assert stages == sorted(stages)
    assert max(lengths) - min(lengths) <= 1
    assert layer_count(settings, settings.round_count) == settings.target_layer_count
    assert len(list(growth_rounds(settings))) == settings.stage_count - 1


def test_rounds_beyond_the_schedule_stay_at_the_target() -> None:
    assert layer_count(PAPER, 121) == layer_count(PAPER, 10_000) == 6


def test_one_stage_is_a_model_that_does_not_grow() -> None:
    settings = GrowthSettings(target_layer_count=6, stage_count=1, round_count=5)

    assert [layer_count(settings, number) for number in range(1, 6)] == [6] * 5
    assert list(growth_rounds(settings)) == []


@pytest.mark.parametrize(
    ("target", "stages", "rounds", "message"),
    [
        (0, 1, 1, "target_layer_count must be >= 1, got 0"),
        (6, 0, 1, "stage_count must be >= 1, got 0"),
        (6, 1, 0, "round_count must be >= 1, got 0"),
        (6, 4, 120, "target_layer_count must be a multiple of stage_count 4, got 6"),
        (6, 6, 5, "round_count must be >= stage_count 6, got 5"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused(
    target: int, stages: int, rounds: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        GrowthSettings(target_layer_count=target, stage_count=stages, round_count=rounds)


@pytest.mark.parametrize("stage", [0, 7])
def test_a_stage_beyond_the_target_is_refused(stage: int) -> None:
    with pytest.raises(ValueError, match=rf"growth_stage must be in \[1, 6\], got {stage}"):
        layer_count_of_stage(PAPER, stage)


def test_rounds_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="round_number must be >= 1, got 0"):
        layer_count(PAPER, 0)
