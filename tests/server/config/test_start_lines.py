"""What a run says about its privacy before it begins."""

import re

import msgspec
import pytest

from privacy.accounting.accountant import epsilon_of
from privacy.accounting.events import GaussianRelease
from privacy.example_level.settings import ExamplePrivacySettings
from server.config.start_lines import outlook, promises
from tests.server.config.test_guarantee_rules import (
    ATTENTIVE,
    BUFFERS,
    CENTRAL,
    LOCAL,
    SAMPLED,
    config,
)

EVENT = GaussianRelease(noise_multiplier=1.5, adjacency="zero-out", sampling=None)


def test_a_run_without_a_guarantee_says_just_that() -> None:
    assert outlook(config('mode = "none"\nclipping_norm = 1.0')) == [
        "none: no noise, no privacy guarantee"
    ]


def test_a_run_says_what_it_will_have_spent() -> None:
    promise, spending = outlook(config(CENTRAL.replace("8.0", "100.0")))

    assert promise.startswith("central: ")
    assert f"after round 10 epsilon is {epsilon_of([EVENT] * 10, 1e-3):.3g} at delta" in spending
    assert "not amplified" in spending
    assert "stop" not in spending


def test_what_is_spent_already_counts() -> None:
    _, spending = outlook(config(), spent=[EVENT] * 10, first_round=11)

    assert f"epsilon is {epsilon_of([EVENT] * 10, 1e-3):.3g}" in spending


def test_a_budget_below_that_stops_the_run() -> None:
    _, spending = outlook(config(CENTRAL.replace("8.0", "1.0")))

    assert spending.endswith("epsilon_budget is 1; the run will stop before that")


def test_attempts_that_come_to_nothing_are_named_where_they_cost_something() -> None:
    aggregation = 'rule = "mean"\nweighting = "equal"'

    line = outlook(config(LOCAL, aggregation=aggregation))[-1]

    assert line.startswith("an attempt that misses its quorum costs as much as a round")


def test_buffers_say_what_they_hold_and_what_a_restart_does() -> None:
    run = config(BUFFERS)
    # Two buffers of 8 bytes a parameter.
    megabytes = 16 * run.schema.element_count / 1e6

    lines = outlook(run)

    assert "noise through 2 buffers of 1.5 times the sensitivity" in lines[0]
    assert lines[-1].startswith(f"the buffers of its noise take {megabytes:.3g} MB")
    assert "after a restart" in lines[-1]


def test_coins_are_named_with_their_rate() -> None:
    _, spending = outlook(config(rounds=SAMPLED))

    assert "amplified by secret coins at rate 0.5" in spending


def test_the_second_layer_is_named_whatever_the_first() -> None:
    examples = ExamplePrivacySettings(
        clipping_norm=0.5, noise_multiplier=1.5, sampling_rate=0.05, delta=1e-5
    )
    for privacy in (CENTRAL, 'mode = "none"\nclipping_norm = 1.0'):
        first = config(privacy)
        training = msgspec.structs.replace(
            first.training, example_privacy=examples, local_epochs=2, gradient_clipping_norm=None
        )
        both = msgspec.structs.replace(first, training=training)

        lines = outlook(both)

        assert lines[:-1] == outlook(first)
        # Two epochs at a rate of 0.05 are 40 steps.
        assert "each of 40 steps a round draws a sentence with chance 0.05" in lines[-1]
        assert promises(both) == [first.privacy.guarantee, lines[-1]]
        assert promises(first) == [first.privacy.guarantee]


def test_what_a_run_starts_from_is_named_as_uncovered_where_there_is_a_guarantee() -> None:
    for privacy, count in ((CENTRAL, 1), ('mode = "none"\nclipping_norm = 1.0', 0)):
        first = config(privacy)
        both = msgspec.structs.replace(first, start_from="public/releases/latest")

        added = outlook(both)[len(outlook(first)) :]

        assert len(added) == count
        assert all(
            "public/releases/latest" in line and "nothing here covers" in line for line in added
        )
        assert promises(both) == [*promises(first), *added]


@pytest.mark.parametrize(("strength", "is_told"), [(0.5, False), (0.9, True)])
def test_attention_above_a_half_tells_its_price(strength: float, *, is_told: bool) -> None:
    lines = outlook(config(aggregation=f"{ATTENTIVE}\nattention_strength = {strength}"))

    prices = [
        float(found[1]) for line in lines if (found := re.search(r"costs ([\d.]+) times", line))
    ]
    # M = 5, flat clip over several layers: 2E M / (4 + E + sqrt(5 (3 + 2E))), E = e^0.9.
    energy = 2.718281828**0.9
    expected = 10 * energy / (4 + energy + (5 * (3 + 2 * energy)) ** 0.5)
    assert prices == ([pytest.approx(expected, abs=0.006)] if is_told else [])


@pytest.mark.parametrize(("strength", "most"), [(0.9, 2.46), (-0.9, 2.46), (3.0, 20.1)])
def test_attention_under_noise_on_sums_tells_the_most_that_it_can_cost(
    strength: float, most: float
) -> None:
    # Noise on the mean has no bound for the latter two under one clip over several layers.
    aggregation = f"{ATTENTIVE}\nattention_strength = {strength}"

    lines = outlook(config(f'{CENTRAL}\nnoise_on = "sums"', aggregation=aggregation))

    assert any(f"costs at most {most:g} times the noise of equal weights" in line for line in lines)


@pytest.mark.parametrize(("strength", "is_told"), [(-0.5, False), (-0.9, True)])
def test_attention_to_those_who_moved_least_tells_its_price_too(
    strength: float, *, is_told: bool
) -> None:
    # One clip over several layers has no bound below 0.
    privacy = f'{CENTRAL}\nclipping = "per-layer"'
    aggregation = f'{ATTENTIVE}\ngrouping = "tensor"\nattention_strength = {strength}'

    lines = outlook(config(privacy, aggregation=aggregation))

    assert any(f"attention strength {strength:g} costs" in line for line in lines) is is_told
