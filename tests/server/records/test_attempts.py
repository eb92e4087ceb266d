"""An attempt lasts as long as it was opened for, whatever the clock did while nobody ran it."""

import pytest

from server.records.attempts import OpenAttempt

DAY_S = 86_400


@pytest.mark.parametrize(
    ("now", "left_s"),
    [
        (130.0, 30.0),
        (160.0, 0.0),
        # A clock that was set forward ends it, and one that was set back makes it no longer.
        (130.0 + DAY_S, 30.0 - DAY_S),
        (130.0 - DAY_S, 60.0),
    ],
)
def test_what_is_left_of_an_attempt_is_never_more_than_all_of_it(now: float, left_s: float) -> None:
    opened = OpenAttempt(1, 0, None, bytes(32), opened_at=100.0, deadline_ms=160_000)

    assert opened.left_s(now) == left_s
