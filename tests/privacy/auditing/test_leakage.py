import numpy as np
import pytest

from privacy.auditing.leakage import area_under_curve, word_leakage
from privacy.auditing.scores import AuditError


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    # Positives 3 and 1 against 2 and 1: pairs 3>2, 3>1 in order, 1<2 not, 1=1 half.
    area = area_under_curve([3.0, 1.0, 2.0, 1.0], [True, True, False, False])

    assert area == pytest.approx((1 + 1 + 0 + 0.5) / 4)


def test_each_trace_is_measured_by_itself_and_both_together() -> None:
    # Four of six words were not typed: three went one way, (1, 1), and the fourth a little off it.
    # Columns have the medians 1 and 1; distances are 3, 2, 1, 0, 0, 0.
    rows = [[1.0, 4.0], [3.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    typed = np.array([True, True, False, False, False, False])

    found = word_leakage(
        rows=rows,
        bias=[-1.0, 2.0, 1.0, 0.0, 0.0, 0.0],
        frequency=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        typed=typed,
    )

    assert found.by_row == 1.0
    # Biases of typed words -1 and 2 against 1, 0, 0, 0: four of eight pairs.
    assert found.by_bias == 0.5
    # Rank sums 6 + 1 and 5 + 6 against 4 + 5 and three times 2 + 3: all but one of eight pairs.
    assert found.by_both == pytest.approx(7 / 8)
    assert found.by_frequency == 0.0


def test_rows_that_all_move_far_alike_tell_nothing_by_their_length() -> None:
    # Untyped rows moved by 10, typed rows by 1 in another direction: only the way tells.
    rows = np.tile([10.0, 0.0], (9, 1))
    rows[:2] = [0.0, 1.0]

    found = word_leakage(rows, np.zeros(9), np.zeros(9), np.arange(9) < 2)

    assert found.by_row == 1.0


def test_what_cannot_be_compared_is_refused() -> None:
    rows, some = np.ones((3, 2)), np.array([True, False, True])

    with pytest.raises(AuditError, match="items of both kinds, got 3 positive and 0 negative"):
        area_under_curve(np.ones(3), np.array([True] * 3))
    with pytest.raises(AuditError, match="rows must be finite"):
        word_leakage(rows * np.nan, np.ones(3), np.ones(3), some)
    with pytest.raises(AuditError, match=r"rows must have shape \(3, embed\), got \(2, 2\)"):
        word_leakage(rows[:2], np.ones(3), np.ones(3), some)
