"""The workers of a close: how many, how far ahead, and what becomes of their errors."""

import os
import threading

import pytest

from server.aggregation.closing_workers import (
    ClosingWorkers,
    buffers_wanted,
    closing_worker_count,
)


@pytest.mark.parametrize(("cores", "count"), [(1, 2), (2, 2), (3, 2), (4, 3), (16, 15), (64, 16)])
def test_one_core_of_many_stays_with_the_calls_of_devices(
    monkeypatch: pytest.MonkeyPatch, cores: int, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))

    assert closing_worker_count() == count


@pytest.mark.parametrize("buffers", [1, 2, 3, 5, 8, 21, 60])
def test_no_close_needs_more_buffers_than_it_has(buffers: int) -> None:
    for count in range(1, 20):
        workers = ClosingWorkers(count, buffers=buffers)

        # What lags behind is held while what comes next is opened.
        assert workers.ahead >= 1
        assert workers.lag + workers.ahead <= min(buffers, buffers_wanted(count))
        # A batch is added while the next one fills.
        assert workers.lag in {0, 2 * workers.batch - 1}


def test_a_single_worker_works_in_the_callers_thread() -> None:
    workers = ClosingWorkers(1)

    assert workers.submit(threading.get_ident).result() == threading.get_ident()
    with ClosingWorkers(2) as others:
        assert others.submit(threading.get_ident).result() != threading.get_ident()


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_error_is_raised_once_all_work_has_ended(count: int) -> None:
    ended = []

    def fails(text: str) -> None:
        ended.append(text)
        raise ValueError(text)

    with ClosingWorkers(count) as workers, pytest.raises(ValueError, match="the first"):
        workers.run([lambda: fails("the first"), lambda: fails("the second"), lambda: None])

    assert sorted(ended) == ["the first", "the second"]


@pytest.mark.parametrize(("count", "buffers"), [(0, 3), (2, 0)])
def test_no_close_is_without_a_worker_or_a_buffer(count: int, buffers: int) -> None:
    with pytest.raises(ValueError, match=f"a worker and a buffer, got {count} and {buffers}"):
        ClosingWorkers(count, buffers=buffers)
