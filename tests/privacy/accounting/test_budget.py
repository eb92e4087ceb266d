"""A run stops before the round that would pass its budget, and noise is found for one."""

import math

import pytest

from privacy.accounting.accountant import SlotOverflowError, epsilon_of
from privacy.accounting.budget import BudgetExceededError, PrivacyBudget, check_budget, rounds_left
from privacy.accounting.calibration import noise_multiplier_for
from privacy.accounting.events import (
    GaussianRelease,
    PrivacyEvent,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.slot_overflow import overflow_probability, slot_count_for
from privacy.accounting.tally import Tally, tally

BUDGET = PrivacyBudget(epsilon_budget=8.0, delta=1e-6)
ROUND = GaussianRelease(noise_multiplier=5.0, adjacency="zero-out", sampling=None)
COINS = SecretCoinFlips(sampling_rate=0.02, population_size=100, slot_count=100)
SAMPLED = GaussianRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=COINS)


LEAF = TreeRelease(
    noise_multiplier=5.0,
    adjacency="zero-out",
    min_separation=5,
    max_participation=20,
    tree_number=0,
)


@pytest.mark.slow
@pytest.mark.parametrize("event", [ROUND, SAMPLED, LEAF])
def test_rounds_left_is_the_last_number_that_fits(event: PrivacyEvent) -> None:
    left = rounds_left(Tally(), event, BUDGET)

    assert epsilon_of([event] * left, BUDGET.delta) <= 8.0
    assert epsilon_of([event] * (left + 1), BUDGET.delta) > 8.0
    # What was spent is not there any more.
    assert rounds_left(tally([event] * 10), event, BUDGET) == left - 10
    assert rounds_left(tally([event] * left), event, BUDGET) == 0
    assert rounds_left(Tally(), event, BUDGET, most=5) == 5


@pytest.fixture(scope="module")
def left() -> int:
    return rounds_left(Tally(), ROUND, BUDGET)


@pytest.mark.slow
def test_the_round_that_would_pass_the_budget_is_refused(left: int) -> None:
    assert check_budget([ROUND] * (left - 1), ROUND, BUDGET) <= 8.0
    with pytest.raises(BudgetExceededError, match="above epsilon_budget 8: 0 rounds left") as found:
        check_budget([ROUND] * left, ROUND, BUDGET)
    assert found.value.rounds_left == 0
    assert found.value.epsilon > 8.0


@pytest.mark.slow
def test_a_plan_that_cannot_end_is_told_how_many_rounds_fit_and_what_to_change(left: int) -> None:
    with pytest.raises(BudgetExceededError, match=f"{left} rounds left; raise noise_mul") as found:
        check_budget([], ROUND, BUDGET, rounds=1000)
    assert found.value.rounds_left == left


def test_after_a_release_without_guarantee_nothing_is_left() -> None:
    with pytest.raises(BudgetExceededError, match="epsilon to inf"):
        check_budget([UnprotectedRelease(mode="none")], ROUND, BUDGET)


def test_rounds_whose_draws_could_overflow_too_often_do_not_fit() -> None:
    # q^2 = 1e-8 a round may add up to delta / 10 = 1e-7: ten rounds, however much noise.
    coins = SecretCoinFlips(sampling_rate=1e-4, population_size=2, slot_count=1)
    event = GaussianRelease(noise_multiplier=10.0, adjacency="zero-out", sampling=coins)

    assert rounds_left(Tally(), event, BUDGET) == 10
    with pytest.raises(SlotOverflowError, match="slot_count must keep"):
        check_budget([event] * 10, event, BUDGET)


def test_a_delta_above_one_over_the_population_is_no_question_of_rounds() -> None:
    budget = PrivacyBudget(epsilon_budget=8.0, delta=0.02)

    with pytest.raises(ValueError, match="delta must be at most 1 / population"):
        rounds_left(Tally(), SAMPLED, budget)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_is_none_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="epsilon_budget must be > 0"):
        PrivacyBudget(epsilon_budget=value, delta=1e-6)
    with pytest.raises(ValueError, match="delta must be"):
        PrivacyBudget(epsilon_budget=1.0, delta=value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds", "rate"),
    [(8.0, 1e-5, 1000, 0.02), (8.0, 1e-6, 1000, 1.0), (1.0, 1e-6, 100, 0.1), (0.1, 1e-5, 10, 0.5)],
)
def test_calibrated_noise_is_the_least_that_fits(
    epsilon: float, delta: float, rounds: int, rate: float
) -> None:
    z = noise_multiplier_for(epsilon, delta, rounds, rate)

    def spent(noise_multiplier: float) -> float:
        coins = SecretCoinFlips(sampling_rate=rate, population_size=10, slot_count=10)
        sampling = None if rate == 1 else coins
        event = GaussianRelease(
            noise_multiplier=noise_multiplier, adjacency="zero-out", sampling=sampling
        )
        return epsilon_of([event] * rounds, delta)

    assert spent(z) <= epsilon
    assert spent(z * 0.998 - 1e-4) > epsilon


def test_less_noise_than_can_be_asked_for_is_not_looked_for() -> None:
    assert noise_multiplier_for(1e5, 1e-5, 1, 1.0) == 0.01


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds", "rate", "name"),
    [
        (0.0, 1e-5, 10, 0.1, "target_epsilon"),
        (math.nan, 1e-5, 10, 0.1, "target_epsilon"),
        (8.0, 0.0, 10, 0.1, "delta"),
        (8.0, 1e-5, 0, 0.1, "rounds"),
        (8.0, 1e-5, 10, math.nan, "sampling_rate"),
        (None, 1e-5, 10, 0.1, "target_epsilon"),
    ],
)
def test_what_calibration_cannot_use_is_refused_by_name(
    epsilon: float, delta: float, rounds: int, rate: float, name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        noise_multiplier_for(epsilon, delta, rounds, rate)


def test_the_chance_of_too_many_people_is_the_binomial_tail() -> None:
    # Three coins at 1/2: more than 1 head in 4 of 8 cases, more than 2 in 1 of 8.
    assert overflow_probability(3, 0.5, 1) == pytest.approx(0.5)
    assert overflow_probability(3, 0.5, 2) == pytest.approx(0.125)
    assert overflow_probability(3, 0.5, 3) == 0.0


def test_slots_are_as_few_as_the_tail_allows() -> None:
    rounds, delta = 1000, 1e-5

    slots = slot_count_for(10_000, 0.01, rounds=rounds, delta=delta)

    assert rounds * overflow_probability(10_000, 0.01, slots) <= delta / 10
    assert rounds * overflow_probability(10_000, 0.01, slots - 1) > delta / 10
