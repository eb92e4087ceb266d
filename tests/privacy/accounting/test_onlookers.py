"""The same events against two onlookers: readers of releases, and the coordinator."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privacy.accounting.accountant import epsilon_of, reports
from privacy.accounting.budget import BudgetExceededError, PrivacyBudget, check_budget
from privacy.accounting.discrete_noise import LOSS_BESIDE, share_variance, shares_log_ratio
from privacy.accounting.events import (
    BufferedRelease,
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    MaskedAttempt,
    MaskedRelease,
    PrivacyEvent,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.one_gaussian import gaussian_delta
from privacy.accounting.onlookers import Epsilons
from privacy.accounting.tally import tally

DELTA = 1e-6
ATTEMPT: PrivacyEvent = MaskedAttempt(
    noise_multiplier=2.0, adjacency="zero-out", honest_contributors=70
)
RELEASE: PrivacyEvent = MaskedRelease(
    noise_multiplier=2.0, adjacency="zero-out", honest_contributors=70
)
GAUSSIAN = GaussianRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None)
BY_COORDINATOR: list[PrivacyEvent] = [
    GAUSSIAN,
    EvaluationRelease(noise_multiplier=2.0, adjacency="zero-out", sampling=None),
    TreeRelease(
        noise_multiplier=2.0,
        adjacency="zero-out",
        min_separation=1,
        max_participation=3,
        tree_number=0,
    ),
]
BUFFERED = BufferedRelease(
    noise_multiplier=2.0,
    adjacency="zero-out",
    min_separation=1,
    max_participation=3,
    buffer_decays=(0.9, 0.5),
    buffer_scales=(0.3, 0.3),
)


def rounds(*, released: int, abandoned: int = 0) -> list[PrivacyEvent]:
    """Return the ledger of a run under masks whose abandoned attempts come first."""
    return [ATTEMPT] * abandoned + [ATTEMPT, RELEASE] * released


def test_rounds_of_shares_are_one_gaussian_for_either_onlooker() -> None:
    # Nine releases at z are one at z / 3; by hand its delta is that of [Balle], Theorem 8.
    epsilons = [epsilon_of(rounds(released=9), DELTA, who) for who in ("readers", "coordinator")]

    assert epsilons[0] == epsilons[1]
    z = 2.0 / 3
    by_hand = norm.cdf(0.5 / z - epsilons[0] * z) - math.exp(epsilons[0]) * norm.cdf(
        -0.5 / z - epsilons[0] * z
    )
    assert by_hand == pytest.approx(DELTA, rel=0.01)
    # ρ = T / 2z², and ε = ρ + 2 sqrt(ρ ln 1/δ) is what ρ-zCDP gives at the most.
    rho = 9 / (2 * 2.0**2)
    assert epsilons[0] < rho + 2 * math.sqrt(rho * math.log(1 / DELTA)) < 1.2 * epsilons[0]


def test_abandoned_attempts_raise_the_coordinators_figure_alone() -> None:
    calm, troubled = rounds(released=3), rounds(released=3, abandoned=6)

    assert epsilon_of(troubled, DELTA) == epsilon_of(calm, DELTA)
    # Nine attempts cost what nine rounds do.
    assert epsilon_of(troubled, DELTA, "coordinator") == pytest.approx(
        epsilon_of(rounds(released=9), DELTA, "coordinator")
    )
    assert epsilon_of([ATTEMPT] * 6, DELTA) == 0.0


@pytest.mark.parametrize(
    "event", [*BY_COORDINATOR, BUFFERED], ids=lambda event: type(event).__name__
)
def test_noise_of_the_coordinator_promises_nothing_against_it(event: PrivacyEvent) -> None:
    assert math.isfinite(epsilon_of([event], DELTA))
    assert epsilon_of([event], DELTA, "coordinator") == math.inf
    # One such event spoils a run under masks as well.
    assert epsilon_of([*rounds(released=1), event], DELTA, "coordinator") == math.inf


def test_noise_of_a_device_on_its_own_update_is_the_same_to_both() -> None:
    events: list[PrivacyEvent] = [LocalRelease(noise_multiplier=3.0)] * 4

    of_both = reports(events, DELTA)

    assert of_both.readers.epsilon == of_both.coordinator.epsilon == epsilon_of(events, DELTA)
    assert (of_both.readers.onlooker, of_both.coordinator.onlooker) == ("readers", "coordinator")


def test_no_noise_promises_nothing_to_anybody() -> None:
    events: list[PrivacyEvent] = [UnprotectedRelease(mode="none")]

    assert [epsilon_of(events, DELTA, who) for who in ("readers", "coordinator")] == [math.inf] * 2


def test_two_accountants_agree_on_both_figures() -> None:
    of_both = reports(rounds(released=2, abandoned=2), DELTA)

    for found in of_both:
        assert found.epsilon_prv == pytest.approx(found.epsilon, abs=0.02)
    assert of_both.coordinator.epsilon > of_both.readers.epsilon


@given(
    events=st.lists(
        st.sampled_from([ATTEMPT, RELEASE, LocalRelease(noise_multiplier=2.0), *BY_COORDINATOR]),
        max_size=6,
    ).filter(lambda events: len({isinstance(event, LocalRelease) for event in events}) < 2)
)
@settings(max_examples=30, deadline=None)
def test_the_coordinators_epsilon_is_never_below_the_readers(events: list[PrivacyEvent]) -> None:
    # As in a run: no release without its attempt.
    paid = [one for event in events for one in ([ATTEMPT] if event is RELEASE else []) + [event]]

    assert epsilon_of(paid, DELTA, "coordinator") >= epsilon_of(paid, DELTA)


def test_each_budget_stops_at_its_own_onlooker() -> None:
    held = rounds(released=3, abandoned=6)
    # A millionth for the order in which the accountant adds them up.
    four, nine = (epsilon_of([RELEASE] * count, DELTA) + 1e-6 for count in (4, 9))
    of_readers = PrivacyBudget(epsilon_budget=four, delta=DELTA)
    of_coordinator = PrivacyBudget(
        epsilon_budget=nine,
        delta=DELTA,
        onlooker="coordinator",
    )

    assert check_budget(held, RELEASE, of_readers) <= of_readers.epsilon_budget
    with pytest.raises(BudgetExceededError, match="above epsilon_budget"):
        check_budget([*held, RELEASE], RELEASE, of_readers)
    assert check_budget(held[1:], ATTEMPT, of_coordinator) <= of_coordinator.epsilon_budget
    with pytest.raises(
        BudgetExceededError,
        match=r"1 attempt more would bring epsilon against the coordinator to .* above "
        r"coordinator_epsilon_budget .*: 0 attempts left",
    ):
        check_budget(held, ATTEMPT, of_coordinator)


def test_both_figures_are_told_with_their_onlookers() -> None:
    masked = Epsilons(readers=1.25, coordinator=2.5, delta=1e-5)
    central = masked._replace(coordinator=math.inf)

    assert masked.told == (
        "epsilon is 1.25 against readers of releases and 2.5 against the coordinator, at delta "
        "1e-05"
    )
    assert central.told == (
        "epsilon is 1.25 against readers of releases at delta 1e-05; nothing is promised against "
        "the coordinator, which sees updates before any noise"
    )


@pytest.mark.parametrize("honest", [1, 2, 5])
@pytest.mark.parametrize("z", [0.5, 2.0])
def test_shares_of_discrete_noise_cost_no_more_than_the_gaussian_they_are_counted_as(
    honest: int, z: float
) -> None:
    # The narrowest shares that a grid may have, and the largest whole sensitivity for which they
    # are z of it or more.
    noise_std = math.sqrt(25 * honest - 4)
    std = math.sqrt(share_variance(noise_std, honest))
    sensitivity = math.floor(noise_std / z)
    # The exact sum of honest shares, by convolution, before and after a person changed it.
    points = np.arange(-70, 71)
    one = np.exp(-(points**2) / (2 * std**2))
    total = one / one.sum()
    for _ in range(honest - 1):
        total = np.convolve(total, one / one.sum())
    before = np.concatenate([total, np.zeros(sensitivity)])
    after = np.concatenate([np.zeros(sensitivity), total])

    assert std == pytest.approx(5)
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        exact = float(np.maximum(after - math.exp(epsilon + LOSS_BESIDE) * before, 0).sum())
        counted = gaussian_delta(noise_std / sensitivity, epsilon)
        assert exact <= counted * (1 + LOSS_BESIDE) + 1e-16


def test_what_the_grid_costs_beside_gaussians_is_below_what_is_added() -> None:
    # 2 T for each of 2^20 sums of 2^30 elements with 2^20 honest shares of 5 steps.
    assert 2 * 2.0**20 * shares_log_ratio(5.0, 2**20, 2**30) < LOSS_BESIDE / 10
    assert tally([RELEASE]).loss_beside == LOSS_BESIDE
    assert epsilon_of([RELEASE], DELTA) > epsilon_of([GAUSSIAN], DELTA)
    assert tally([GAUSSIAN]).loss_beside == 0
