"""Places for bytes in flight: an honest order, a fixed bound, none for what stands still."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable

import pytest

from protos.data_chunks import PIECE_BYTES as PIECE
from protos.refusals import RefusalCode
from server.devices.refused_calls import RefusedError
from server.devices.transfer_line import TransferLine


class Skipping(selectors.DefaultSelector):
    """Wait for nothing but bytes: the seconds that a loop would wait are over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(None if timeout is None else 0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still while the machine is slow."""

    def __init__(self) -> None:
        self._skipping = Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Transfers:
    """Transfers that stay until they are let go, and the order in which they got their places."""

    def __init__(self, line: TransferLine) -> None:
        self.line = line
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, name: str, size: int) -> asyncio.Task[None]:
        self._ends[name] = asyncio.Event()

        async def run() -> None:
            async with self.line.turn(size):
                self.began.append(name)
                await self._ends[name].wait()

        task = asyncio.create_task(run())
        await settle()
        return task

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settle()


def with_line(line: TransferLine, scene: Callable[[Transfers], Awaitable[None]]) -> None:
    async def play() -> None:
        await scene(Transfers(line))

    asyncio.run(play())


def test_places_go_in_the_order_in_which_they_were_asked_for_and_a_small_one_overtakes_nobody() -> (
    None
):
    async def scene(transfers: Transfers) -> None:
        for name, size in (
            ("a", PIECE),
            ("b", PIECE),
            ("c", PIECE),
            ("small", 1),
            ("d", PIECE),
        ):
            await transfers.start(name, size)
        # Two pieces fit into two and a half; the small one would, and waits behind the third.
        assert transfers.began == ["a", "b"]
        assert (transfers.line.held_bytes, transfers.line.waiting) == (2 * PIECE, 3)

        await transfers.end("b")
        assert transfers.began == ["a", "b", "c", "small"]
        await transfers.end("a")
        await transfers.end("c")
        assert transfers.began[-1] == "d"
        await transfers.end("d")
        await transfers.end("small")
        assert (transfers.line.held_bytes, transfers.line.waiting) == (0, 0)

    with_line(TransferLine(5 * PIECE // 2), scene)


def test_a_large_transfer_counts_for_one_piece_and_a_tiny_one_for_a_256th() -> None:
    async def scene(transfers: Transfers) -> None:
        await transfers.start("large", 1 << 30)
        assert transfers.line.held_bytes == PIECE
        await transfers.start("tiny", 1)
        assert transfers.line.held_bytes == PIECE + (32 << 20) // 256

    with_line(TransferLine(32 << 20), scene)


def test_a_device_that_leaves_the_line_takes_no_place() -> None:
    async def scene(transfers: Transfers) -> None:
        await transfers.start("a", PIECE)
        gone, called = (
            await transfers.start("gone", PIECE),
            await transfers.start("called", PIECE),
        )
        gone.cancel()
        await transfers.end("a")
        assert transfers.began == ["a", "called"]
        # Called and cancelled at one moment: the place is given on.
        await transfers.start("last", PIECE)
        await transfers.end("called")
        assert called.done()
        await transfers.end("last")
        assert transfers.began[-1] == "last"
        assert transfers.line.held_bytes == 0

    with_line(TransferLine(PIECE), scene)


def test_what_stands_still_loses_its_place_only_if_others_wait_and_nothing_moves() -> None:
    line = TransferLine(2 * PIECE, still_s=0.2)
    ended: list[str] = []

    async def hold(name: str, *, moving_s: float) -> None:
        try:
            async with line.turn(PIECE) as call:
                for _ in range(round(moving_s / 0.05)):
                    await asyncio.sleep(0.05)
                    call.moved()
                await asyncio.sleep(5.0)
        except RefusedError as refused:
            assert refused.code is RefusalCode.TOO_SLOW
            ended.append(name)

    async def scene() -> None:
        still = asyncio.create_task(hold("still", moving_s=0.0))
        moving = asyncio.create_task(hold("moving", moving_s=0.6))
        await asyncio.sleep(0.3)
        assert ended == []  # nobody waits
        waiting = asyncio.create_task(hold("waiting", moving_s=5.0))
        await asyncio.sleep(0.25)
        assert ended == []  # another one moves
        await asyncio.wait_for(still, 2.0)
        await settle()
        assert ended == ["still"]
        assert line.waiting == 0
        for task in (moving, waiting):
            task.cancel()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("count", [40])
def test_bytes_in_flight_never_exceed_the_bound_whatever_the_crowd(count: int) -> None:
    line, most = TransferLine(4 * PIECE), 0

    async def transfer() -> None:
        nonlocal most
        async with line.turn(PIECE) as call:
            most = max(most, line.held_bytes)
            await asyncio.sleep(0.001)
            call.moved()

    async def crowd() -> None:
        await asyncio.gather(*(transfer() for _ in range(count)))

    asyncio.run(crowd())

    assert most == 4 * PIECE
    assert line.held_bytes == 0
