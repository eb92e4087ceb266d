import math

import pytest

from server.config.convergence import ConvergenceSettings, ConvergenceTracker


def stops_after(perplexities: list[float], **settings: float) -> int | None:
    """Return the first round at which the run stops, or None."""
    tracker = ConvergenceTracker(
        ConvergenceSettings(
            patience=int(settings["patience"]),
            least_improvement=settings.get("least_improvement", 0.0),
        )
    )
    for round_number, perplexity in enumerate(perplexities, start=1):
        if tracker.observe(round_number, perplexity).has_converged:
            return round_number
    return None


def test_the_run_stops_after_patience_evaluations_without_improvement() -> None:
    assert stops_after([100, 90, 95, 91, 92], patience=3) == 5
    assert stops_after([100, 90, 95, 89, 92, 91], patience=3) is None


def test_an_improvement_below_the_least_one_does_not_count() -> None:
    # 1 % of 100: 99.5 and 99.2 are no improvement, 98.9 is.
    assert stops_after([100, 99.5, 99.2], patience=2, least_improvement=0.01) == 3
    assert stops_after([100, 99.5, 98.9, 98.5], patience=2, least_improvement=0.01) is None


def test_small_steps_add_up_to_an_improvement() -> None:
    falling = [100 * 0.996**step for step in range(20)]

    assert stops_after(falling, patience=4, least_improvement=0.01) is None


def test_without_a_criterion_the_run_goes_on() -> None:
    tracker = ConvergenceTracker(None)

    assert not any(tracker.observe(number, 50.0).has_converged for number in range(1, 50))


def test_the_best_round_is_the_first_of_the_lowest_perplexity() -> None:
    tracker = ConvergenceTracker(None)

    verdicts = [
        tracker.observe(n, p).is_best for n, p in enumerate((math.inf, 90, 95, 90), start=1)
    ]

    assert verdicts == [False, True, False, False]
    assert (tracker.best_round, tracker.best_perplexity) == (2, 90)


@pytest.mark.parametrize("perplexity", [0.5, math.nan, -1.0])
def test_a_figure_that_is_no_perplexity_is_refused(perplexity: float) -> None:
    with pytest.raises(ValueError, match="perplexity must be >= 1"):
        ConvergenceTracker(None).observe(1, perplexity)


@pytest.mark.parametrize(
    ("patience", "least_improvement"), [(0, 0.0), (1, 1.0), (1, -0.1), (1, math.nan)]
)
def test_a_criterion_that_makes_no_sense_is_refused(
    patience: int, least_improvement: float
) -> None:
    with pytest.raises(ValueError, match=r"patience must be|least_improvement must be"):
        ConvergenceSettings(patience=patience, least_improvement=least_improvement)
