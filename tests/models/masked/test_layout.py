import dataclasses
import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.masked.layout import CHECK_COUNT, MaskedLayout, masked_layout
from models.plan.plan import Plan, decode_plan
from models.settings.weighing import AttentiveWeights, EqualWeights, ExampleWeights, Weighing
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.settings import NoNoise
from tests.masked_scene import masked_noise, masked_plan

WEIGHINGS: list[Weighing] = [
    EqualWeights(),
    ExampleWeights(),
    AttentiveWeights(attention_strength=0.5, grouping="tensor"),
    AttentiveWeights(attention_strength=-2.0, grouping="layer"),
]
ADAPTIVE = AdaptiveClipping(count_noise_std=2.0)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    cohort = draw(st.integers(2, 10_000))
    privacy = masked_noise(
        clipping_norm=draw(st.floats(1e-3, 1e3)),
        noise_multiplier=draw(st.floats(0.05, 1.5)),
        clipping=draw(st.sampled_from(["flat", "per-layer"])),
        adjacency=draw(st.sampled_from(["zero-out", "replace-one"])),
        adaptive_clipping=draw(st.sampled_from([None, ADAPTIVE])),
        honest_share=draw(st.floats(0.1, 1.0)),
    )
    return masked_plan(
        privacy=privacy,
        weighing=draw(st.sampled_from(WEIGHINGS)),
        hidden_size=draw(st.integers(1, 40)),
        cohort_size=cohort,
        quorum=draw(st.integers(1, cohort)),
    )


def noise_std(layout: MaskedLayout, privacy: MaskedNoise, quorum: int) -> float:
    """Return the noise of one weight's element when just the honest shares come, in its units."""
    return layout.grid.share_std * layout.grid.step * math.sqrt(privacy.honest_contributors(quorum))


@settings(max_examples=60, deadline=None)
@given(plans())
def test_both_ends_derive_one_layout_whose_parts_lie_one_behind_the_other(plan: Plan) -> None:
    layout, theirs = masked_layout(plan), masked_layout(decode_plan(plan.encode()))

    assert layout == theirs
    assert layout.sha256 == theirs.sha256
    assert layout.weights.start == layout.schema.element_count
    assert layout.weights.stop - layout.weights.start == len(layout.units)
    tells_fit = plan.privacy.adaptation is not None
    assert layout.noised_count == layout.weights.stop + tells_fit == layout.grid.element_count
    assert layout.element_count == layout.noised_count + CHECK_COUNT
    covered = sorted((where.start, where.stop) for unit in layout.units for where in unit.ranges)
    assert covered[0][0] == 0 and covered[-1][1] == layout.schema.element_count
    assert all(end == start for (_, end), (start, _) in pairwise(covered))
    assert math.hypot(*set_of_clips(layout)) == pytest.approx(1.0)


def set_of_clips(layout: MaskedLayout) -> tuple[float, ...]:
    """Return the clips that make up the whole: one flat one, or one a unit."""
    clips = layout.unit_clips
    return clips[:1] if clips == (1.0,) * len(clips) else clips


@settings(max_examples=30, deadline=None)
@given(plans(), st.floats(1e-3, 1e3))
def test_the_layout_does_not_depend_on_the_clipping_norm_which_moves(
    plan: Plan, clipping_norm: float
) -> None:
    privacy = msgspec.structs.replace(plan.privacy, clipping_norm=clipping_norm)

    moved = masked_layout(msgspec.structs.replace(plan, privacy=privacy))
    assert dataclasses.astuple(moved.grid) == pytest.approx(
        dataclasses.astuple(masked_layout(plan).grid)
    )


def test_noise_is_the_multiplier_times_the_sensitivity_of_updates_and_weights() -> None:
    plan = masked_plan(quorum=2)
    layout = masked_layout(plan)

    # S = C sqrt(1.1) at z = 1, in clipping norms; rounding and measuring cost at most 0.6 %.
    assert isinstance(plan.privacy, MaskedNoise)
    std = noise_std(layout, plan.privacy, 2)
    assert math.sqrt(1.1) <= std <= math.sqrt(1.1) * 1.006


def test_replacing_an_update_takes_twice_the_noise_of_leaving_it_out() -> None:
    layouts = [
        masked_layout(masked_plan(privacy=masked_noise(adjacency=adjacency)))
        for adjacency in ("zero-out", "replace-one")
    ]

    one, two = (layout.grid.share_std * layout.grid.step for layout in layouts)
    assert two == pytest.approx(2 * one, rel=0.01)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_the_count_behind_the_clip_has_the_noise_that_the_settings_name(adjacency: str) -> None:
    privacy = masked_noise(adaptive_clipping=ADAPTIVE, adjacency=adjacency)
    layout = masked_layout(masked_plan(privacy=privacy))

    assert layout.fit_entry is not None
    in_clients = noise_std(layout, privacy, 3) / layout.fit_entry
    assert in_clients == pytest.approx(2.0, rel=0.006)
    # And the rest has z S (1 - (z s / σ)²)^-1/2, s = 1/2 or 1, at σ = 2 and z = 1.
    factor, moved = (1.0, 0.5) if adjacency == "zero-out" else (2.0, 1.0)
    expected = factor * math.sqrt(1.1) / math.sqrt(1 - (moved / 2) ** 2)
    assert noise_std(layout, privacy, 3) == pytest.approx(expected, rel=0.006)


def test_a_lower_honest_share_makes_each_share_of_the_noise_larger() -> None:
    every, half = (
        masked_layout(
            masked_plan(privacy=masked_noise(honest_share=share), cohort_size=8, quorum=8)
        ).grid
        for share in (1.0, 0.5)
    )

    # Four of eight must make up the noise of eight: sqrt(2) each.
    assert half.share_std * half.step == pytest.approx(
        math.sqrt(2) * every.share_std * every.step, rel=0.01
    )


def test_a_plan_of_another_mode_has_no_masked_vectors() -> None:
    plan = msgspec.structs.replace(masked_plan(), privacy=NoNoise(), weighing=msgspec.UNSET)

    with pytest.raises(ValueError, match=r'privacy\.mode = "masked", got "none"'):
        masked_layout(plan)


def test_a_masked_plan_must_say_with_how_few_updates_a_round_closes() -> None:
    with pytest.raises(ValueError, match="quorum must be given"):
        masked_layout(masked_plan(quorum=None))


def test_no_group_may_be_empty() -> None:
    with pytest.raises(ValueError, match="no group may be empty"):
        masked_layout(masked_plan(privacy=masked_noise(groups=4)))
