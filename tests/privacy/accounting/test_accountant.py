"""Epsilon by two accountants, held to exact formulas and to each other."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting.accountant import (
    AccountantsDisagreeError,
    check_agreement,
    epsilon_of,
    report,
)
from privacy.accounting.events import (
    Adjacency,
    BufferedRelease,
    EvaluationRelease,
    GaussianRelease,
    LocalRelease,
    PrivacyEvent,
    SecretCoinFlips,
    TreeRelease,
    UnprotectedRelease,
)
from privacy.accounting.second_opinion import UnsoundAccountantError, check_second_opinion
from privacy.accounting.tally import Tally
from privacy.accounting.tree import epsilon_of_rho


def release(
    noise_multiplier: float, sampling_rate: float = 1.0, adjacency: Adjacency = "zero-out"
) -> GaussianRelease:
    """Return a release with as many slots as people, so that no draw can overflow."""
    coins = SecretCoinFlips(sampling_rate=sampling_rate, population_size=100, slot_count=100)
    return GaussianRelease(
        noise_multiplier=noise_multiplier,
        adjacency=adjacency,
        sampling=None if sampling_rate == 1 else coins,
    )


def leaf(tree_number: int = 0, noise_multiplier: float = 7.0) -> TreeRelease:
    return TreeRelease(
        noise_multiplier=noise_multiplier,
        adjacency="zero-out",
        min_separation=313,
        max_participation=6,
        tree_number=tree_number,
    )


def buffered(noise_multiplier: float = 1.0) -> BufferedRelease:
    """Return a round of which C's column is 1, 1/2, 1/4, ..."""
    return BufferedRelease(
        noise_multiplier=noise_multiplier,
        adjacency="zero-out",
        min_separation=2,
        max_participation=2,
        buffer_decays=(0.5,),
        buffer_scales=(0.5,),
    )


def exact_delta(noise_multiplier: float, epsilon: float) -> float:
    """δ of one Gaussian release: Balle and Wang, ICML 2018, arXiv:1805.06530, Theorem 8."""

    def normal_below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    near, far = 1 / (2 * noise_multiplier), epsilon * noise_multiplier
    return normal_below(near - far) - math.exp(epsilon) * normal_below(-near - far)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise_multiplier", "delta"),
    [(0.3, 1e-5), (0.7, 1e-8), (1.0, 1e-3), (3.0, 1e-5), (20.0, 1e-8)],
)
def test_one_release_costs_what_the_exact_formula_says(
    noise_multiplier: float, delta: float
) -> None:
    epsilon = epsilon_of([release(noise_multiplier)], delta)

    assert exact_delta(noise_multiplier, epsilon) <= delta * (1 + 1e-6)
    assert exact_delta(noise_multiplier, epsilon - 1e-4) > delta or epsilon < 1e-4


def test_releases_without_sampling_are_one_with_less_noise() -> None:
    # Four releases at z = 2 are one at z = 1: the sum of z^-2 counts.
    assert epsilon_of([release(2.0)] * 4, 1e-5) == pytest.approx(epsilon_of([release(1.0)], 1e-5))


def test_an_evaluation_is_spent_too() -> None:
    # A release and an evaluation at z = sqrt 2 each are one release at z = 1.
    root = math.sqrt(2)
    measured = EvaluationRelease(noise_multiplier=root, adjacency="zero-out", sampling=None)

    assert epsilon_of([release(root), measured], 1e-5) == pytest.approx(
        epsilon_of([release(1.0)], 1e-5)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise_multiplier", "sampling_rate", "rounds", "delta"),
    [
        (0.6, 0.01, 1000, 1e-6),
        (4.0, 0.5, 100, 1e-5),
        (1.0, 1.0, 1, 1e-5),
        (10.0, 1.0, 100, 1e-6),
        (1.0, 0.1, 1, 1e-5),
        (2.0, 0.25, 500, 1e-6),
        (0.8, 0.02, 2000, 1e-6),
        (20.0, 1.0, 1000, 1e-9),
        (1.0, 0.0001, 2_000, 1e-8),
        (100.0, 0.1, 100, 1e-6),
        (5.0, 0.2, 5000, 1e-10),
    ],
)
def test_two_accountants_agree_within_a_hundredth(
    noise_multiplier: float, sampling_rate: float, rounds: int, delta: float
) -> None:
    events = [release(noise_multiplier, sampling_rate)] * rounds

    found = report(events, delta)

    assert found.epsilon == found.epsilon_pld
    assert found.epsilon_pld is not None and found.epsilon_prv is not None
    assert abs(found.epsilon_pld - found.epsilon_prv) <= 0.011


@pytest.mark.slow
def test_two_accountants_agree_about_a_mixture() -> None:
    events = [release(1.0, 0.01)] * 500 + [release(0.8, 0.02)] * 100 + [release(30.0)] * 50

    found = report(events, 1e-6)

    assert found.epsilon_pld is not None and found.epsilon_prv is not None
    assert abs(found.epsilon_pld - found.epsilon_prv) <= 0.011


@pytest.mark.parametrize(("by_pld", "by_prv"), [(1.0, 1.021), (8.0, 8.09), (1.0, math.nan)])
def test_accountants_that_disagree_are_not_reported(by_pld: float, by_prv: float) -> None:
    # Allowed: 0.02, and 1 % above 2.
    with pytest.raises(AccountantsDisagreeError, match="neither is reported"):
        check_agreement(by_pld, by_prv)


@pytest.mark.parametrize(("by_pld", "by_prv"), [(1.0, 1.019), (8.0, 8.07), (8.0, 7.93)])
def test_rounding_is_no_disagreement(by_pld: float, by_prv: float) -> None:
    check_agreement(by_pld, by_prv)


@pytest.mark.slow
def test_opacus_gdp_is_refused_and_does_understate() -> None:
    from opacus.accountants.analysis.gdp import compute_eps_poisson

    rounds, delta = 1000, 1e-6
    by_gdp = compute_eps_poisson(steps=rounds, noise_multiplier=0.6, sample_rate=0.001, delta=delta)

    # PRV's upper bound is at most 0.03 above the truth, and still four times GDP's figure.
    spent = report([release(0.6, 0.001)] * rounds, delta).epsilon
    assert by_gdp < (spent - 0.03) / 4
    with pytest.raises(UnsoundAccountantError, match=r"gdp is refused: .* understates epsilon"):
        report([release(0.6, 0.001)], delta, second_opinion="gdp")
    with pytest.raises(ValueError, match="second opinion must be prv, got 'rdp'"):
        check_second_opinion("rdp")


@pytest.mark.slow
@settings(max_examples=5)
@given(
    noise_multiplier=st.floats(0.5, 20),
    sampling_rate=st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]),
    rounds=st.integers(1, 500),
    more=st.integers(1, 100),
)
def test_more_rounds_never_cost_less_and_more_noise_never_more(
    noise_multiplier: float, sampling_rate: float, rounds: int, more: int
) -> None:
    def epsilon(z: float, count: int) -> float:
        return epsilon_of([release(z, sampling_rate)] * count, 1e-6)

    grid = 1e-3  # Each figure is rounded up on a grid of its own.
    here = epsilon(noise_multiplier, rounds)
    assert epsilon(noise_multiplier, rounds + more) >= here - grid
    assert epsilon(noise_multiplier * 1.5, rounds) <= here + grid


@pytest.mark.slow
@settings(max_examples=4)
@given(
    noise_multiplier=st.floats(0.5, 10),
    sampling_rate=st.sampled_from([0.001, 0.01, 0.1, 0.5]),
    rounds=st.integers(1, 200),
)
def test_sampling_never_costs_more_than_taking_everybody(
    noise_multiplier: float, sampling_rate: float, rounds: int
) -> None:
    sampled = epsilon_of([release(noise_multiplier, sampling_rate)] * rounds, 1e-6)

    assert sampled <= epsilon_of([release(noise_multiplier)] * rounds, 1e-6) + 1e-3


def test_gboards_figures_come_out_of_events() -> None:
    found = report([leaf()] * 2000, 1e-10)

    assert found.rho is not None
    assert (round(found.rho, 2), round(found.epsilon, 2)) == (0.81, 8.90)
    assert found.epsilon_pld is None and found.epsilon_prv is None


def test_a_restart_and_an_evaluation_add_to_a_trees_rho() -> None:
    # Two trees of one leaf: 2 nodes at z = 1 would be rho 1 with one leaf each, but 313 rounds
    # must lie between: 1/2. An evaluation at z = 1 adds 1/2.
    measured = EvaluationRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=None)

    found = report([leaf(0, 1.0), leaf(1, 1.0), measured], 1e-6)

    assert found.rho == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("rounds", "squared"),
    # (1), (1, 1/2), then (1, 1/2, 1/4) and (0, 0, 1): 1 + 1/4 + 25/16.
    [(1, 1), (2, 1 + 1 / 4), (3, 45 / 16)],
)
def test_buffered_noise_is_paid_for_as_far_as_it_was_released(rounds: int, squared: float) -> None:
    found = report([buffered(2.0)] * rounds, 1e-6)

    assert found.rho == pytest.approx(squared / 8)
    assert found.epsilon_pld is None and found.epsilon_prv is None
    assert found.epsilon == pytest.approx(epsilon_of_rho(squared / 8, 1e-6))


def test_an_evaluation_adds_to_the_rho_of_buffered_noise() -> None:
    measured = EvaluationRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=None)

    assert report([buffered(), measured], 1e-6).rho == pytest.approx(1.0)


def test_a_release_without_guarantee_makes_epsilon_infinite() -> None:
    found = report([release(1.0), UnprotectedRelease(mode="paper")], 1e-5)

    assert found.epsilon == math.inf
    assert found.epsilon_prv is None and found.rho is None


def test_nothing_released_is_nothing_spent() -> None:
    assert epsilon_of([], 1e-5) == 0.0


def test_the_chance_of_too_many_people_is_taken_off_delta() -> None:
    # 2 people, one slot, q = 1e-4: both are drawn with probability q^2 = 1e-8 a round.
    coins = SecretCoinFlips(sampling_rate=1e-4, population_size=2, slot_count=1)
    event = GaussianRelease(noise_multiplier=1.0, adjacency="zero-out", sampling=coins)

    found = report([event] * 10, 1e-6)

    assert found.overflow == pytest.approx(1e-7)
    roomy = [release(1.0, 1e-4)] * 10
    assert found.epsilon == pytest.approx(epsilon_of(roomy, 9e-7), abs=1e-9)
    with pytest.raises(ValueError, match="slot_count must keep"):
        epsilon_of([event] * 11, 1e-6)


def test_delta_above_one_over_the_population_is_refused() -> None:
    with pytest.raises(ValueError, match=r"delta must be at most 1 / population = 0\.01"):
        epsilon_of([release(1.0, 0.5)], 0.02)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([release(1.0), release(1.0, adjacency="replace-one")], "adjacency must be zero-out"),
        ([release(1.0), LocalRelease(noise_multiplier=1.0)], "adjacency must be zero-out"),
        ([leaf(0), leaf(2)], "tree_number must be 0 or the next, got 2"),
        ([leaf(1)], "tree_number must be 0 or the next, got 1"),
        ([leaf(0), leaf(0, 8.0)], "must be those of the tree's first leaf"),
        ([buffered(), buffered(2.0)], "the buffers must be those of the run's first round"),
        ([leaf(), buffered()], "the buffers must be those of the run's first round"),
        ([buffered(), leaf()], "must be those of the tree's first leaf"),
    ],
)
def test_events_that_do_not_add_up_are_refused(events: list[PrivacyEvent], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        epsilon_of(events, 1e-5)


def test_local_rounds_compose_without_amplification() -> None:
    local = [LocalRelease(noise_multiplier=2.0)] * 4

    assert epsilon_of(local, 1e-5) == pytest.approx(epsilon_of([release(1.0)], 1e-5))


def test_a_hopeless_setting_is_told_without_the_second_accountant() -> None:
    found = report([release(0.0036)], 1e-5)

    assert found.epsilon > 1 / (2 * 0.0036**2)
    assert found.epsilon_prv is None


def test_a_tally_is_never_shared_with_the_one_it_came_from() -> None:
    empty = Tally()

    empty.plus(release(1.0, 0.1))

    assert empty.sampled == {} and Tally().sampled == {}


@pytest.mark.slow
def test_the_figure_alone_never_loads_the_second_accountant() -> None:
    script = (
        "import sys\n"
        "from privacy.accounting.accountant import epsilon_of\n"
        "from privacy.accounting.events import LocalRelease\n"
        "epsilon_of([LocalRelease(noise_multiplier=1.0)], 1e-5)\n"
        "print([name for name in ('opacus', 'torch') if name in sys.modules])\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"
