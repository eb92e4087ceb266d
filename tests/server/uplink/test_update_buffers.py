"""A bounded number of buffers, each remembering what it holds."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from server.aggregation.closing_workers import buffers_wanted
from server.uplink.update_buffers import UpdateBuffers, buffer_count_for


def test_a_buffer_that_holds_what_is_wanted_is_preferred() -> None:
    buffers = UpdateBuffers(3, 8)
    taken = [buffers.take(None) for _ in range(3)]
    for name, buffer in zip("abc", taken, strict=True):
        buffer.holds = name
        buffers.give_back(buffer)

    assert buffers.take("b") is taken[1]
    # What nobody holds goes into the one that was given back longest ago.
    assert buffers.take("d") is taken[0]
    assert buffers.take("b") is taken[2]


def test_no_more_are_lent_than_there_are() -> None:
    buffers = UpdateBuffers(2, 8)
    both, lock = Barrier(2), Lock()
    lent: set[int] = set()
    most: list[int] = []

    def work(number: int) -> None:
        buffer = buffers.take(number)
        with lock:
            lent.add(number)
            most.append(len(lent))
        if number < 2:
            both.wait(timeout=60)
        with lock:
            lent.remove(number)
        buffers.give_back(buffer)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(50)))

    assert max(most) == 2


def test_what_takes_long_gets_stale_memory_and_leaves_two_buffers() -> None:
    buffers = UpdateBuffers(5, 8)
    taken = [buffers.take(None) for _ in range(5)]
    for buffer, attempt in zip(taken, (1, 2, 1, 1, 2), strict=True):
        buffer.keep("an update", attempt, b"")
        buffers.give_back(buffer)

    # Of the three that hold something of attempt 1, none is lent to another of its updates.
    assert buffers.take_spare(1) is taken[1]
    assert buffers.take_spare(1) is taken[4]
    assert buffers.take_spare(1) is None
    assert buffers.take_spare(3) is taken[0]
    # Two are left for those that come for a moment.
    assert buffers.take_spare(3) is None
    assert taken[0].holds is None


@pytest.mark.parametrize(
    ("update_bytes", "cohort_size", "count"),
    [
        (8 << 20, 1, 3),  # the cohort's, and two for what is opened from its file
        (8 << 20, 10, 12),
        (8 << 20, 128, 16),
        (8 << 20, 129, 4),  # of these an eighth at most would be open still
        (8 << 20, None, 16),
        (64 << 20, 128, 8),  # 512 MiB
        (1 << 30, 1000, 2),
    ],
)
def test_memory_is_bounded_whatever_the_cohort(
    update_bytes: int, cohort_size: int | None, count: int
) -> None:
    assert buffer_count_for(update_bytes, cohort_size) == count


@pytest.mark.parametrize(
    ("update_bytes", "cohort_size", "workers", "count", "for_closing"),
    [
        (4 << 20, 10, 2, 14, 4),  # all of the cohort is opened on arrival, and four close
        (4 << 20, 100, 2, 16, 4),
        (4 << 20, 1000, 2, 8, 4),  # of a large cohort, what is opened at one time
        (4 << 20, 3, 2, 7, 3),  # no close of three has more than half of what lies open
        (4 << 20, 1000, 16, 64, 32),  # two a worker
        (40 << 20, 1000, 16, 12, 6),  # 512 MiB
        (1 << 30, 1000, 16, 2, 2),
    ],
)
def test_a_close_has_about_two_buffers_a_worker_and_arrivals_have_the_others(
    update_bytes: int, cohort_size: int, workers: int, count: int, for_closing: int
) -> None:
    wanted = buffers_wanted(workers)

    assert buffer_count_for(update_bytes, cohort_size, closing=wanted) == count
    buffers = UpdateBuffers(count, 8, closing=wanted)
    assert buffers.for_closing == for_closing
    taken = []
    while (buffer := buffers.take_spare("an attempt")) is not None:
        taken.append(buffer)
    assert len(taken) == count - for_closing
