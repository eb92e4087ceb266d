import numpy as np
import pytest

from privacy.audit_leakage import area_under_curve, word_leakage
from privacy.audit_scores import AuditError


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    # Positives 3 and 1 against 2 and 1: pairs 3>2, 3>1 in order, 1<2 not, 1=1 half.
    area = area_under_curve([3.0, 1.0, 2.0, 1.0], [True, True, False, False])

    assert area == pytest.approx((1 + 1 + 0 + 0.5) / 4)


def test_each_trace_is_measured_by_itself_and_both_together() -> None:
    typed = np.array([True, True, False, False])

    found = word_leakage(
        row_norms=[4.0, 3.0, 2.0, 1.0],
        bias=[-1.0, 2.0, 1.0, 0.0],
        frequency=[1.0, 2.0, 3.0, 4.0],
        typed=typed,
    )

    assert found.by_row == 1.0
    # Biases of typed words -1 and 2 against 1 and 0: two of four pairs.
    assert found.by_bias == 0.5
    # Rank sums 4+1, 3+4, 2+3, 1+2: 7 beats both, 5 beats 3 and ties with 5.
    assert found.by_both == pytest.approx(3.5 / 4)
    assert found.by_frequency == 0.0


def test_what_cannot_be_compared_is_refused() -> None:
    ones = np.ones(3)

    with pytest.raises(AuditError, match="items of both kinds, got 3 positive and 0 negative"):
        area_under_curve(ones, np.array([True] * 3))
    with pytest.raises(AuditError, match="row norms must be finite"):
        word_leakage([np.nan, 1, 1], ones, ones, np.array([True, False, True]))
    with pytest.raises(AuditError, match="biases must have shape"):
        word_leakage(ones, np.ones(2), ones, np.array([True, False, True]))
