"""A TCP proxy that is a bad network: slow, late, and cut, half open or silent at random.

Each connection is a device's own line: it has its own rate in each direction, and its own dice.
A hole is the whole link's: nothing passes in it, and what was on its way passes afterwards.
"""

import asyncio
import contextlib
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self

_PIECE_BYTES = 16 << 10
# Less than what the kernel would hold by itself, which on loopback is more than a whole model.
_KERNEL_BYTES = 64 << 10
# A router forgets a connection of which it has heard nothing.
_FORGOTTEN_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How bad a link is.

    Attributes:
        delay_s: Seconds that bytes take, one way.
        bytes_per_s: Rate of one connection in each direction.
        cut_chance: Chance that a connection is lost with each ``cut_every_bytes`` that pass.
        half_open: Share of lost connections of which only one end learns.
        hole_s: Seconds of one silence of the whole link in each ``hole_every_s``.
    """

    delay_s: float = 0.2
    bytes_per_s: float = 1e6
    cut_chance: float = 0.05
    cut_every_bytes: int = 256 << 10
    half_open: float = 0.5
    hole_s: float = 20.0
    hole_every_s: float = 60.0


@dataclass
class Passed:
    """The bytes that a link let through, and its faults."""

    payload_bytes: int = 0
    connections: int = 0
    cuts: int = 0
    half_open: int = 0
    holes: int = 0


class BadLink:
    """A proxy in a thread of its own, a context manager.

    Attributes:
        port: Where it listens on loopback.
        passed: Its counts so far.
    """

    def __init__(self, target_port: int, weather: Weather, seed: int) -> None:
        self.passed = Passed()
        self.port = 0
        self._target_port = target_port
        self._weather = weather
        self._random = random.Random(seed)  # noqa: S311 (dice that can be thrown again)
        self._loop = asyncio.new_event_loop()
        self._calm = asyncio.Event()
        self._calm.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> int:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        listening.bind(("127.0.0.1", 0))
        await asyncio.start_server(self._join, sock=listening, limit=_PIECE_BYTES)
        if self._weather.hole_s:
            self._holes = self._loop.create_task(self._dig())
        return int(listening.getsockname()[1])

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _dig(self) -> None:
        """Let nothing pass once in each period, from a random moment on."""
        weather = self._weather
        while True:
            before_s = self._random.uniform(0, weather.hole_every_s - weather.hole_s)
            await asyncio.sleep(before_s)
            self._calm.clear()
            self.passed.holes += 1
            await asyncio.sleep(weather.hole_s)
            self._calm.set()
            await asyncio.sleep(weather.hole_every_s - weather.hole_s - before_s)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled at the end of the link alone, of which asyncio would complain.
        with contextlib.suppress(asyncio.CancelledError):
            await self._carry(reader, writer)
        writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection in both directions until it ends or is lost."""
        await self._calm.wait()
        upstream = socket.socket()
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        upstream.setblocking(False)
        try:
            await self._loop.sock_connect(upstream, ("127.0.0.1", self._target_port))
        except OSError:
            upstream.close()
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(sock=upstream, limit=_PIECE_BYTES)
        for one in (writer, far_writer):
            one.transport.set_write_buffer_limits(_KERNEL_BYTES)
        self.passed.connections += 1
        line = _Line(self, self._weather, self._random, self._calm)
        pumps = [
            asyncio.ensure_future(line.pump(reader, far_writer)),
            asyncio.ensure_future(line.pump(far_reader, writer)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        if line.is_lost and self._random.random() < self._weather.half_open:
            self.passed.half_open += 1
            await self._leave_half_open(writer, far_writer)
        writer.transport.abort()
        far_writer.transport.abort()

    async def _leave_half_open(self, *ends: asyncio.StreamWriter) -> None:
        """Close one end; the other hears nothing until it gives up by itself."""
        told, silent = self._random.sample(ends, 2)
        told.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(silent.wait_closed(), _FORGOTTEN_S)


class _Line:
    """One connection, which is lost with a chance by its bytes."""

    def __init__(
        self, link: BadLink, weather: Weather, source: random.Random, calm: asyncio.Event
    ) -> None:
        self.is_lost = False
        self._link = link
        self._weather = weather
        self._random = source
        self._calm = calm
        self._until_dice = weather.cut_every_bytes

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one direction, late and slowly, until either end closes or the line is lost."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(
            max(4, int(self._weather.bytes_per_s * self._weather.delay_s / _PIECE_BYTES))
        )
        taking = asyncio.ensure_future(self._take(reader, on_the_way))
        free_at = 0.0
        try:
            while not self.is_lost:
                due, piece = await on_the_way.get()
                free_at = max(free_at, due)
                await asyncio.sleep(free_at - time.monotonic())
                await self._calm.wait()
                if not piece:
                    return
                writer.write(piece)
                await writer.drain()
                free_at = max(free_at, time.monotonic() - 0.1) + len(piece) / (
                    self._weather.bytes_per_s
                )
                self._link.passed.payload_bytes += len(piece)
                self._throw_dice(len(piece))
        except OSError:
            return
        finally:
            taking.cancel()

    async def _take(
        self, reader: asyncio.StreamReader, on_the_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        piece = b"."
        while piece:
            try:
                piece = await reader.read(_PIECE_BYTES)
            except OSError:
                piece = b""
            await on_the_way.put((time.monotonic() + self._weather.delay_s, piece))

    def _throw_dice(self, passed_bytes: int) -> None:
        self._until_dice -= passed_bytes
        if self._until_dice <= 0:
            self._until_dice += self._weather.cut_every_bytes
            if self._random.random() < self._weather.cut_chance:
                self.is_lost = True
                self._link.passed.cuts += 1
