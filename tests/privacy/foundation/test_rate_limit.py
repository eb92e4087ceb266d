"""How often one client may call."""

import pytest

from privacy.foundation.rate_limit import RateLimit


def test_a_bucket_holds_the_burst_and_fills_at_the_rate() -> None:
    now = 100.0
    limit = RateLimit(per_second=2.0, burst=3, clock=lambda: now)

    assert [limit.wait_s("ann") for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.wait_s("bob") == 0
    now += 0.5
    assert [limit.wait_s("ann") for _ in range(2)] == [0, 0.5]
    now += 1000
    assert [limit.wait_s("ann") for _ in range(4)] == [0, 0, 0, 0.5]


def test_memory_stays_bounded_whatever_calls() -> None:
    limit = RateLimit(per_second=1.0, burst=1, clock=lambda: 0.0)

    for number in range(200_000):
        limit.wait_s(str(number))

    # The oldest buckets were dropped, the newest are known.
    assert limit.wait_s("0") == 0
    assert limit.wait_s("199999") == 1


@pytest.mark.parametrize(("per_second", "burst"), [(0.0, 1), (float("nan"), 1), (1.0, 0)])
def test_settings_without_sense_are_refused(per_second: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        RateLimit(per_second=per_second, burst=burst)
