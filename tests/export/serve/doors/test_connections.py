"""A connection may send and leave unread so much, and a listener holds so many."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from export.serve.doors.bounded_listener import BoundedListener
from export.serve.doors.connections import PIECE_BYTES, bounded_connection
from privacy.foundation.callers import network_of_address

ANSWER = bytes(64 * PIECE_BYTES)
GET = b"GET / HTTP/1.1\r\n\r\n"

App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def large(_: Scope, __: Receive, send: Send) -> None:
    """Answer with 4 MiB in pieces."""
    length = [(b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    for start in range(0, len(ANSWER), PIECE_BYTES):
        more = start + PIECE_BYTES < len(ANSWER)
        piece = ANSWER[start : start + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def never(_: Scope, __: Receive, ___: Send) -> None:
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving(app: App) -> AsyncIterator[tuple[str, int]]:
    config = uvicorn.Config(
        app, http=bounded_connection(100.0), lifespan="off", log_config=None, ws="none"
    )
    config.timeout_graceful_shutdown = 0
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    # Connections inherit it: pieces wait in the server and not in the kernel.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE_BYTES)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield listening.getsockname()
    finally:
        server.should_exit = True
        await running


@contextlib.asynccontextmanager
async def connected(address: tuple[str, int], sent: bytes) -> AsyncIterator[asyncio.StreamReader]:
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, address)
    reader, writer = await asyncio.open_connection(sock=small, limit=4096)
    writer.write(sent)
    try:
        yield reader
    finally:
        writer.close()


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(1 << 16), 60):
            received += piece
    return received


def test_an_answer_that_is_not_taken_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.serve.doors.connections.TAKEN_WITHIN_S", 0.1)

    async def ask() -> bytes:
        ended = asyncio.Event()

        async def large_until_cut_off(scope: Scope, receive: Receive, send: Send) -> None:
            await large(scope, receive, send)
            ended.set()

        async with serving(large_until_cut_off) as address, connected(address, GET) as reader:
            await asyncio.wait_for(ended.wait(), 60)
            return await _until_end(reader)

    assert 0 < len(asyncio.run(ask())) < len(ANSWER)


def test_an_answer_that_is_taken_slowly_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.serve.doors.connections.TAKEN_WITHIN_S", 0.3)

    async def ask() -> int:
        async with serving(large) as address:
            loop = asyncio.get_running_loop()
            now_s = loop.time()
            with monkeypatch.context() as patched:
                # Time passes with what the client takes, however slow the machine is.
                patched.setattr(loop, "time", lambda: now_s)
                async with connected(address, GET) as reader:
                    await reader.readuntil(b"\r\n\r\n")
                    left = len(ANSWER)
                    while left:  # 4 MiB in 16 parts and 0.64 s, twice what one piece may take.
                        await reader.readexactly(len(ANSWER) // 16)
                        left -= len(ANSWER) // 16
                        now_s += 0.04
            return left

    assert asyncio.run(ask()) == 0


def test_requests_behind_one_that_is_not_answered_are_few() -> None:
    async def ask() -> bytes:
        async with serving(never) as address, connected(address, GET * 1000) as reader:
            return await asyncio.wait_for(_until_end(reader), 60)

    assert asyncio.run(ask()) == b""


@pytest.mark.parametrize("head", [b"X: y\r\n" * 200, b"X: " + b"y" * 70_000 + b"\r\n"])
def test_headers_of_one_piece_are_bounded_too(head: bytes) -> None:
    async def ask() -> bytes:
        sent = b"GET / HTTP/1.1\r\n" + head + b"\r\n"
        async with serving(large) as address, connected(address, sent) as reader:
            return await _until_end(reader)

    assert asyncio.run(ask()).startswith(b"HTTP/1.1 431 ")


@pytest.fixture
def listener() -> Iterator[BoundedListener]:
    with BoundedListener(socket.create_server(("127.0.0.1", 0)), most=4, most_of_one=2) as bounded:
        yield bounded


def _taken(listener: BoundedListener, callers: list[str]) -> list[socket.socket]:
    """Connect from each address, and return the connections that are accepted."""
    calling = [
        socket.create_connection(listener.getsockname(), source_address=(caller, 0))
        for caller in callers
    ]
    accepted = []
    with contextlib.suppress(BlockingIOError):
        while True:
            accepted.append(listener.accept()[0])
    for one in calling:
        one.close()
    return accepted


def test_a_listener_holds_so_many_of_one_caller_and_of_all(listener: BoundedListener) -> None:
    of_one = _taken(listener, ["127.0.0.1"] * 3)
    of_all = _taken(listener, ["127.0.0.2", "127.0.0.3", "127.0.0.4"])

    assert (len(of_one), len(of_all)) == (2, 2)
    of_one[0].close()
    of_one[0].close()  # Counts once.
    again = _taken(listener, ["127.0.0.1"] * 2)
    assert len(again) == 1
    for one in (*of_one, *of_all, *again):
        one.close()


@pytest.mark.parametrize(
    ("address", "caller"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_caller_is_an_address_or_a_network_of_ipv6(address: str, caller: str) -> None:
    assert network_of_address(address) == caller
