"""How often one address may try."""

import pytest

from server.services.rate_limit import RateLimit


def test_a_burst_is_allowed_and_then_one_call_for_each_drop() -> None:
    limit = RateLimit(per_second=2.0, burst=3)

    assert [limit.allows("a", 10.0) for _ in range(5)] == [True, True, True, False, False]
    # Two drops a second: half a second later there is one.
    assert [limit.allows("a", 10.5) for _ in range(2)] == [True, False]
    # However long nobody calls, the bucket holds the burst and no more.
    assert [limit.allows("a", 1000.0) for _ in range(4)] == [True, True, True, False]


def test_addresses_do_not_share_a_bucket() -> None:
    limit = RateLimit(per_second=1.0, burst=1)

    assert limit.allows("a", 0.0)
    assert limit.allows("b", 0.0)
    assert not limit.allows("a", 0.0)


def test_memory_stays_bounded_whatever_calls() -> None:
    limit = RateLimit(per_second=1.0, burst=1)

    for number in range(20_000):
        limit.allows(str(number), 0.0)

    # The oldest buckets were dropped, the newest are known.
    assert limit.allows("0", 0.0)
    assert not limit.allows("19999", 0.0)


@pytest.mark.parametrize(("per_second", "burst"), [(0.0, 1), (float("nan"), 1), (1.0, 0)])
def test_settings_without_sense_are_refused(per_second: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        RateLimit(per_second=per_second, burst=burst)
