"""Who is set aside before anything is summed, and what the limit on norms follows."""

import math

import msgspec
import pytest
import torch

from models.vector.schema import Role, Schema, TensorSpec
from privacy.clipping.clip import UnusableUpdateError
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise
from privacy.noise.settings import NoNoise
from server.aggregation.registry import build_rule
from server.aggregation.robust_settings import MedianSettings
from server.aggregation.screening import Screen, ScreenedError
from server.aggregation.screening_settings import (
    ScreeningSettings,
    check_screening,
    typical_norm_after,
)
from server.aggregation.settings import AggregationSettings, AttentiveSettings, MeanSettings
from server.closing.close import Closed, Closing, close_round
from server.closing.summing import Contribution
from tests.server.closing.test_close import _Recorder

LINE = Schema((TensorSpec(name="line", shape=(1,), layer="line"),))
SHARED_AND_MADE = Schema(
    (
        TensorSpec(name="shared", shape=(1,), layer="shared"),
        TensorSpec(name="made", shape=(1,), layer="made", role=Role.GENERATED),
    )
)
EQUAL = MeanSettings(weighting="equal")
CENTRAL = CentralNoise(
    noise_multiplier=1.0, delta=1e-6, epsilon_budget=8.0, clipping_norm=2.0, adjacency="zero-out"
)
LOCAL = LocalNoise(noise_multiplier=1.0, delta=1e-6, epsilon_budget=8.0, clipping_norm=2.0)
ADAPTIVE = msgspec.structs.replace(
    CENTRAL, adaptive_clipping=AdaptiveClipping(count_noise_std=10.0)
)


def close(
    *values: float,
    screen: Screen | None,
    clipping_norm: float | None = None,
    aggregation: AggregationSettings = EQUAL,
    slot_count: int | None = None,
) -> Closed:
    contributions = [
        Contribution(slot, torch.tensor([value]), 1) for slot, value in enumerate(values)
    ]
    return close_round(
        torch.zeros(1),
        contributions,
        Closing(
            schema=LINE,
            aggregation=aggregation,
            privacy=NoNoise(clipping_norm=clipping_norm),
            slot_count=slot_count or len(values),
            generator=torch.Generator(),
            screen=screen,
        ),
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("aggregation", [EQUAL, MedianSettings()], ids=repr)
def test_one_client_with_nan_costs_no_round(bad: float, aggregation: AggregationSettings) -> None:
    screen = Screen(ScreeningSettings())

    closed = close(1.0, bad, 1.0, 1.0, screen=screen, aggregation=aggregation)

    assert closed.parameters.tolist() == [1.0]
    assert closed.contribution_count == 3
    assert closed.screened == {"not_finite": 1}
    assert screen.refused_slots == [1]


@pytest.mark.parametrize(("under_guarantee", "expected"), [(False, 1.0), (True, 0.75)])
def test_who_is_set_aside_leaves_a_place_only_where_a_guarantee_counts_on_it(
    under_guarantee: bool, expected: float
) -> None:
    screen = Screen(ScreeningSettings())
    rule = build_rule(
        EQUAL,
        LINE,
        slot_count=4,
        clipping_norm=None,
        under_guarantee=under_guarantee,
        screen=screen,
    )

    for slot, value in enumerate((1.0, math.nan, 1.0, 1.0)):
        try:
            rule.add(slot, torch.tensor([value]), 1)
        except UnusableUpdateError as error:
            screen.refuse(slot, error)

    assert rule.result().tolist() == [expected]


def test_who_never_answers_leaves_a_place_beside_one_who_is_set_aside() -> None:
    attentive = AttentiveSettings(attention_strength=0.5)
    screen = Screen(ScreeningSettings())

    closed = close(
        1.0,
        math.nan,
        1.0,
        screen=screen,
        clipping_norm=1.0,
        aggregation=attentive,
        slot_count=4,
    )

    # Two weigh 1 at the clip; of two places without an update one weighs e^-0.5.
    assert closed.parameters.tolist() == pytest.approx([2 / (2 + math.exp(-0.5))])


def test_without_a_screen_it_ends_the_round() -> None:
    with pytest.raises(UnusableUpdateError, match="slot 1: client update must be finite"):
        close(1.0, math.nan, screen=None)


def test_elements_out_of_range_are_set_aside() -> None:
    closed = close(1.0, -2.1, 2.0, screen=Screen(ScreeningSettings(largest_element=2.0)))

    assert closed.parameters.tolist() == [1.5]
    assert closed.screened == {"range": 1}


def test_norms_above_a_multiple_of_the_typical_one_are_set_aside() -> None:
    screen = Screen(ScreeningSettings(norm_factor=3.0), typical_norm=2.0)

    closed = close(-6.0, 6.5, 3.0, screen=screen)

    assert closed.parameters.tolist() == [-1.5]
    assert closed.screened == {"norm": 1}
    # The median of 6, 6.5 and 3 is 6, and half of the way from 2 is the root of 12.
    assert closed.next_typical_norm == pytest.approx(math.sqrt(12))


def test_nobody_who_keeps_to_the_clipping_norm_is_set_aside_for_length() -> None:
    # Most have learnt what there is to learn: 4 times their norm is below the clipping norm.
    screen = Screen(ScreeningSettings(norm_factor=4.0), typical_norm=0.2, clipping_norm=1.0)

    closed = close(0.2, 0.1, 1.0, 9.0, screen=screen, clipping_norm=1.0)

    assert closed.parameters.tolist() == pytest.approx([1.3 / 3])
    assert closed.screened == {"norm": 1}


def test_an_update_at_the_clip_may_be_lengthened_a_quarter_by_its_journey() -> None:
    # 4 times the typical norm is 0.8: what counts is the clipping norm and a quarter of it.
    screen = Screen(ScreeningSettings(norm_factor=4.0), typical_norm=0.2, clipping_norm=1.0)

    closed = close(0.2, 1.2, 1.3, screen=screen, clipping_norm=1.0)

    # 1.2 counts as 1: (0.2 + 1) / 2.
    assert closed.parameters.tolist() == pytest.approx([0.6])
    assert closed.screened == {"norm": 1}
    assert screen.refused_slots == [2]


def test_what_is_set_aside_is_measured_before_it_is_clipped() -> None:
    screen = Screen(ScreeningSettings(norm_factor=4.0), clipping_norm=1.0)

    closed = close(1.0, 3.9, 4.1, screen=screen, clipping_norm=1.0)

    assert closed.contribution_count == 2
    assert closed.clipped_count == 1
    assert closed.screened == {"norm": 1}


def test_nothing_is_known_before_the_first_round() -> None:
    screen = Screen(ScreeningSettings(norm_factor=2.0))

    closed = close(1.0, 1e6, 2.0, screen=screen)

    assert closed.screened == {}
    assert closed.next_typical_norm == 2.0


def test_the_typical_norm_follows_the_quantile_asked_for() -> None:
    screen = Screen(ScreeningSettings(norm_factor=1e9, norm_quantile=0.8))

    assert close(*map(float, range(1, 11)), screen=screen).next_typical_norm == 8.0


def test_norms_that_have_moved_are_found_again_after_a_round_or_two() -> None:
    # Honest norms jump a hundredfold: 1 -> 10 -> 32 -> 56: with a factor of 4 the third passes.
    typical: float | None = 1.0
    passed = []
    for _ in range(3):
        screen = Screen(ScreeningSettings(norm_factor=4.0), typical_norm=typical)
        for slot in range(5):
            try:
                screen.check(torch.tensor([100.0]), 100.0)
            except ScreenedError as error:
                screen.refuse(slot, error)
        passed.append(5 - len(screen.refused_slots))
        typical = screen.next_typical_norm

    assert passed == [0, 0, 5]


def test_a_cohort_of_zeros_teaches_nothing() -> None:
    screen = Screen(ScreeningSettings(norm_factor=2.0), typical_norm=3.0)

    assert close(0.0, 0.0, 1.0, screen=screen).next_typical_norm == 3.0


def test_norms_are_not_followed_unless_they_are_asked_for() -> None:
    assert close(1.0, 2.0, screen=Screen(ScreeningSettings())).next_typical_norm is None


def test_generated_tensors_that_are_not_finite_keep_the_shared_ones_out_too() -> None:
    screen, method = Screen(ScreeningSettings()), _Recorder()

    with pytest.raises(ValueError, match="at least one client update"):
        close_round(
            torch.zeros(1),
            [Contribution(0, torch.tensor([1.0, math.nan]), 1, "device-0001")],
            Closing(
                schema=SHARED_AND_MADE,
                aggregation=EQUAL,
                privacy=NoNoise(),
                slot_count=1,
                generator=torch.Generator(),
                personalisation=method,
                screen=screen,
            ),
        )

    assert screen.counts == {"not_finite": 1}
    assert method.taken == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (ScreeningSettings(largest_element=1.0), "range"),
        (ScreeningSettings(norm_factor=4.0), "norm"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("clipping_norm", [None, 2.0])
def test_generated_tensors_are_screened_as_a_part_of_the_update(
    settings: ScreeningSettings, reason: str, clipping_norm: float | None
) -> None:
    screen, method = Screen(settings, typical_norm=0.5, clipping_norm=clipping_norm), _Recorder()

    closed = close_round(
        torch.zeros(1),
        [
            Contribution(0, torch.tensor([0.3, 0.4]), 1, "ada"),
            Contribution(1, torch.tensor([0.3, 1e9]), 1, "ben"),
        ],
        Closing(
            schema=SHARED_AND_MADE,
            aggregation=EQUAL,
            privacy=NoNoise(clipping_norm=clipping_norm),
            slot_count=2,
            generator=torch.Generator(),
            personalisation=method,
            screen=screen,
        ),
    )

    assert closed.screened == {reason: 1}
    assert closed.parameters.tolist() == pytest.approx([0.3])
    assert [client for client, _, _ in method.taken] == ["ada"]
    if reason == "norm":
        # Of 0.5, the root of 0.3^2 + 0.4^2, and 1e9 the lower is typical; it was 0.5 before.
        assert closed.next_typical_norm == pytest.approx(0.5)


def test_under_a_guarantee_norms_are_not_followed_and_honest_updates_not_refused() -> None:
    with pytest.raises(ValueError, match="no noise covers; leave it out"):
        check_screening(ScreeningSettings(norm_factor=4.0), CENTRAL)
    with pytest.raises(ValueError, match=r"largest_element must be >= the clipping norm 2\.0"):
        check_screening(ScreeningSettings(largest_element=1.9), CENTRAL)
    check_screening(ScreeningSettings(largest_element=2.0), CENTRAL)
    for moving in (LOCAL, ADAPTIVE):
        with pytest.raises(ValueError, match="largest_element must be absent"):
            check_screening(ScreeningSettings(largest_element=1e6), moving)
        check_screening(ScreeningSettings(), moving)
    check_screening(ScreeningSettings(norm_factor=4.0), NoNoise())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"largest_element": 0.0}, "largest_element must be > 0"),
        ({"norm_factor": 1.0}, "norm_factor must be > 1"),
        ({"norm_factor": math.nan}, "norm_factor must be > 1"),
        ({"norm_quantile": 1.0}, "norm_quantile must be > 0 and < 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScreeningSettings(**settings)


def test_a_stage_with_more_layers_starts_anew() -> None:
    figures = {"next_typical_norm": 2.5, "growth_stage": 1}

    assert typical_norm_after(figures, 1) == 2.5
    assert typical_norm_after(figures, 2) is None
    assert typical_norm_after({}, None) is None
