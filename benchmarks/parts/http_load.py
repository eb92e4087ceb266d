"""Ask a server as many clients at once, and count what comes back: run as a process of its own.

``python -m benchmarks.parts.http_load HOST:PORT PATH SECONDS CONNECTIONS [RATE]`` reads one line
for each client from standard input, its token and its text parted by a tab, and prints JSON: what
each answer took, and how many were no 200. Each client holds one connection and types its text key
by key, asking after each, once its last answer is here. With a rate all clients together ask so
many times a second, and an answer's time begins when it was due, so a slow server hides nothing.
For 0 seconds each client asks once, all at one moment.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Count answers.

    Attributes:
        seconds: Duration of each answer.
        errors: Answers that were no 200, and connections that broke.
        started: Questions asked.
        dropped: Questions that got no answer at all.
        elapsed_s: From the first question to the last answer.
    """

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    started: int = 0
    dropped: int = 0
    elapsed_s: float = 0.0


def questions(host: str, path: str, token: str, text: str) -> Iterator[bytes]:
    """Yield requests for ever: the text, a key longer each time, and then from its start."""
    while True:
        for end in range(1, len(text) + 1):
            body = json.dumps({"text": text[:end]}).encode() if path.startswith("/v1") else b""
            method = "POST" if body else "GET"
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            yield head.encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: bytes) -> bool:
    """Send one request and read its answer; return whether it was a 200."""
    writer.write(question)
    head = await reader.readuntil(b"\r\n\r\n")
    fields = head.lower()
    length = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return head.startswith(b"HTTP/1.1 200 ")


async def type_text(
    address: tuple[str, int], path: str, client: tuple[str, str], tally: Tally, pace: "Pace"
) -> None:
    """Be one client until the time is over."""
    async with pace.connecting:
        reader, writer = await asyncio.open_connection(*address)
    asked = questions(address[0], path, *client)
    await pace.begin()
    while (due := await pace.next()) is not None:
        tally.started += 1
        try:
            is_right = await ask(reader, writer, next(asked))
        except (OSError, EOFError):
            tally.dropped += 1
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
            continue
        now = time.perf_counter()
        tally.seconds.append(now - due)
        tally.elapsed_s = now - pace.start
        tally.errors += not is_right
    writer.close()


class Pace:
    """Say when the next question is due: at once, or at the next tick of a shared clock."""

    def __init__(self, seconds: float, clients: int, rate: float | None) -> None:
        """Wait for all clients to be connected before time begins."""
        self._seconds = seconds
        self._interval_s = None if rate is None else 1 / rate
        self._connected = asyncio.Barrier(clients)
        # As many as a listener's queue holds without a loss; the questions come all at once.
        self.connecting = asyncio.Semaphore(256)
        self.start = 0.0
        self._ticks = 0
        self._left = clients

    async def begin(self) -> None:
        """Wait until every client is connected."""
        await self._connected.wait()
        self.start = self.start or time.perf_counter()

    async def next(self) -> float | None:
        """Return when the question was due, waiting for it; None when time is over."""
        now = time.perf_counter()
        if not self._seconds:
            self._left -= 1
            return now if self._left >= 0 else None
        if self._interval_s is None:
            return now if now < self.start + self._seconds else None
        due = self.start + self._ticks * self._interval_s
        self._ticks += 1
        if due >= self.start + self._seconds:
            return None
        await asyncio.sleep(due - now)
        return due


async def load(
    address: tuple[str, int],
    path: str,
    clients: list[tuple[str, str]],
    *,
    seconds: float,
    rate: float | None,
) -> Tally:
    """Be all clients at once."""
    tally = Tally()
    pace = Pace(seconds, len(clients), rate)
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(type_text(address, path, client, tally, pace))
    return tally


def main() -> None:
    """Read the clients, ask, and print."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host, _, port = sys.argv[1].rpartition(":")
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else None
    lines = [line.rstrip("\n").split("\t") for line in sys.stdin][: int(sys.argv[4])]
    clients = [(token, text) for token, text in lines]
    tally = asyncio.run(
        load((host, int(port)), sys.argv[2], clients, seconds=float(sys.argv[3]), rate=rate)
    )
    print(json.dumps(vars(tally)))


if __name__ == "__main__":
    main()
