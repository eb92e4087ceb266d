"""Do a round's exchange with bare gRPC-TLS: every client fetches a model and sends as much back.

Mutual TLS, 1 MiB chunks, one server and each client in a process of its own, memory to memory; no
protobuf, no seal, no disk, no sum. A round ends when the last client's bytes are in.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path

import grpc

from benchmarks.comparators import bare_stream
from benchmarks.parts.two_parties import Parties

_CHUNK_BYTES = 1 << 20
_Context = grpc.aio.ServicerContext[bytes, bytes]


class Rounds(bare_stream.BareStream):
    """Answer an upload when all uploads of its round are in.

    Attributes:
        seconds: Duration of each round.
    """

    def __init__(self, payload_bytes: int, client_count: int) -> None:
        """Serve rounds of one size."""
        super().__init__(chunks_of_size(payload_bytes), memoryview(bytearray(payload_bytes)))
        self.seconds: list[float] = []
        self._client_count = client_count
        self._missing = client_count
        self._all_in = asyncio.Event()
        self._started = time.perf_counter()

    async def _up(self, chunks: AsyncIterator[bytes], context: _Context) -> bytes:
        all_in = self._all_in
        await super()._up(chunks, context)
        self._missing -= 1
        if self._missing == 0:
            now = time.perf_counter()
            self.seconds.append(now - self._started)
            self._started, self._missing, self._all_in = now, self._client_count, asyncio.Event()
            all_in.set()
        await all_in.wait()
        return b""


def chunks_of_size(payload_bytes: int) -> list[bytes]:
    """Return a payload that is cut into chunks."""
    starts = range(0, payload_bytes, _CHUNK_BYTES)
    return [bytes(min(_CHUNK_BYTES, payload_bytes - start)) for start in starts]


async def _take_part(folder: Path, port: int, payload_bytes: int, rounds: int) -> None:
    device = Parties.load(folder).device
    credentials = grpc.ssl_channel_credentials(
        device.authority_pem, device.tls_key_pem, device.tls_certificate_pem
    )
    chunks, buffer = chunks_of_size(payload_bytes), memoryview(bytearray(payload_bytes))
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        for _ in range(rounds):
            await bare_stream.fetch(channel, buffer)
            await bare_stream.send(channel, chunks)


def _client(folder: Path, port: int, payload_bytes: int, rounds: int) -> None:
    asyncio.run(_take_part(folder, port, payload_bytes, rounds))


async def _serve(
    folder: Path, payload_bytes: int, client_count: int, rounds: int, out: Connection
) -> None:
    coordinator = Parties.load(folder).coordinator
    credentials = grpc.ssl_server_credentials(
        [(coordinator.tls_key_pem, coordinator.tls_certificate_pem)],
        root_certificates=coordinator.authority_pem,
        require_client_auth=True,
    )
    served = Rounds(payload_bytes, client_count)
    grpc_server = grpc.aio.server()
    grpc_server.add_generic_rpc_handlers((served.handler(),))
    out.send(grpc_server.add_secure_port("localhost:0", credentials))
    await grpc_server.start()
    while len(served.seconds) < rounds:
        await asyncio.sleep(0.1)
    out.send(served.seconds)
    await grpc_server.stop(1.0)


def _server(
    folder: Path, payload_bytes: int, client_count: int, rounds: int, out: Connection
) -> None:
    asyncio.run(_serve(folder, payload_bytes, client_count, rounds, out))


def exchange_seconds(payload_bytes: int, client_count: int, rounds: int) -> list[float]:
    """Return the seconds of each round but the first, which holds the start of the clients."""
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="sotto-exchange-") as name:
        folder = Path(name)
        Parties.certify(folder)
        here, there = multiprocessing.Pipe()
        arguments = (folder, payload_bytes, client_count, 1 + rounds, there)
        processes = [spawning.Process(target=_server, args=arguments)]
        processes[0].start()
        port = here.recv()
        for _ in range(client_count):
            arguments_of_client = (folder, port, payload_bytes, 1 + rounds)
            processes.append(spawning.Process(target=_client, args=arguments_of_client))
            processes[-1].start()
        seconds: list[float] = here.recv()
        for process in processes:
            process.join()
        return seconds[1:]
