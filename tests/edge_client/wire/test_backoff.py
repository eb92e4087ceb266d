import random
from itertools import islice

from edge_client.wire.backoff import LAST_CEILING_S, delays


def test_ceilings_double_from_a_quarter_second_and_stop_growing() -> None:
    class Ceiling(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    assert list(islice(delays(Ceiling(), last_ceiling_s=3.0), 6)) == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_two_devices_do_not_wait_alike() -> None:
    first, second = (list(islice(delays(random.Random(seed)), 5)) for seed in (1, 2))

    assert all(a != b for a, b in zip(first, second, strict=True))


def test_no_delay_is_negative_or_above_its_ceiling() -> None:
    waits = list(islice(delays(random.Random(3), last_ceiling_s=1.0), 50))

    assert all(0 <= wait <= 1.0 for wait in waits)


def test_a_device_that_failed_all_night_is_back_within_half_a_minute() -> None:
    # The longest wait, and what a handshake takes after TCP has asked three times.
    connecting_s = 8.0

    longest_s = max(islice(delays(random.Random(4)), 10_000))

    assert longest_s + connecting_s <= 30
    # Ten thousand devices that come back together spread over most of that time.
    assert LAST_CEILING_S >= 15
