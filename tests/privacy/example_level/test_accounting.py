"""Epsilon of one example, against another accountant and against arithmetic."""

import subprocess
import sys

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from privacy.example_level.accounting import example_epsilon, with_event
from privacy.example_level.settings import ExampleEvent


def event(noise_multiplier: float, sampling_rate: float, step_count: int) -> ExampleEvent:
    return ExampleEvent(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, step_count=step_count
    )


def second_opinion(events: list[ExampleEvent], delta: float) -> float:
    accountant = PLDAccountant()
    for one in events:
        sampled = PoissonSampledDpEvent(one.sampling_rate, GaussianDpEvent(one.noise_multiplier))
        accountant.compose(SelfComposedDpEvent(sampled, one.step_count))
    return float(accountant.get_epsilon(delta))


@pytest.mark.slow
@pytest.mark.parametrize(
    "events",
    [
        [event(1.0, 0.05, 200)],
        [event(0.6, 0.02, 50)],
        [event(2.0, 0.5, 20)],
        [event(1.0, 1.0, 3)],
        [event(1.0, 0.05, 40), event(0.8, 0.1, 10)],
    ],
    ids=str,
)
def test_two_accountants_agree(events: list[ExampleEvent]) -> None:
    expected = second_opinion(events, 1e-5)

    # Opacus reports the upper end of an error of 0.01.
    assert abs(example_epsilon(events, 1e-5) - expected) < max(0.02, 0.01 * expected)


def test_nothing_costs_nothing() -> None:
    assert example_epsilon([], 1e-5) == 0


def test_more_rounds_cost_more() -> None:
    assert example_epsilon([event(1.0, 0.1, 20)], 1e-5) > example_epsilon(
        [event(1.0, 0.1, 10)], 1e-5
    )


@pytest.mark.parametrize("delta", [0.0, 1.0, float("nan")])
def test_an_impossible_delta_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        example_epsilon([event(1.0, 0.1, 1)], delta)


def test_equal_steps_are_counted_together() -> None:
    spent = with_event(with_event((), event(1.0, 0.1, 5)), event(2.0, 0.1, 1))

    assert with_event(spent, event(1.0, 0.1, 7)) == (event(1.0, 0.1, 12), event(2.0, 0.1, 1))


def test_without_opacus_the_extra_is_named() -> None:
    script = """
import sys
sys.modules["opacus"] = None
from importlib import util
found = util.find_spec
util.find_spec = lambda name: None if name == "opacus" else found(name)
from privacy.example_level.accounting import ExampleAccountantError, require_accountant
try:
    require_accountant()
except ExampleAccountantError as error:
    print(error)
"""

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip().endswith("install sotto[dp-sgd]")


def test_asking_for_the_accountant_loads_neither_it_nor_torch() -> None:
    script = """
import sys
from privacy.example_level.accounting import require_accountant
require_accountant()
print(sorted({"opacus", "torch"} & set(sys.modules)))
"""

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"
