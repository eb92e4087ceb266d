"""Memory goes back to the system when many connections have gone, and at no other time."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from server.records.threads import Threads
from server.services import crowds

CROWD = 20


@pytest.fixture
def handed_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return a list that gets an element each time that memory is handed back."""
    times: list[int] = []
    monkeypatch.setattr(crowds, "hand_back_freed_memory", lambda: times.append(1))
    yield times


@pytest.mark.parametrize(("leaving", "times"), [(CROWD, 1), (CROWD // 2, 0)])
def test_memory_is_handed_back_once_after_a_crowd_has_left(
    handed_back: list[int], leaving: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = crowds._open_descriptors
    looks: list[int] = []

    def noted() -> int:
        looks.append(look())
        return looks[-1]

    async def until_seen() -> None:
        """Wait until a look at what is open now has had its effect: the next one has begun."""
        # The first of three may have begun before.
        most = len(looks) + 3
        while len(looks) < most:
            await asyncio.sleep(0.001)

    async def come_and_go() -> None:
        with ThreadPoolExecutor(1) as executor:
            watching = asyncio.create_task(
                crowds.hand_back_after_crowds(Threads(executor), look_every_s=0.01, crowd=CROWD)
            )
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(leaving)]
            await until_seen()
            assert handed_back == []
            for descriptor in opened:
                os.close(descriptor)
            await until_seen()
            watching.cancel()

    monkeypatch.setattr(crowds, "_open_descriptors", noted)
    asyncio.run(asyncio.wait_for(come_and_go(), 60))

    assert len(handed_back) == times
