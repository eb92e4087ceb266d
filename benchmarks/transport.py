"""Measure what sealing, signing and verifying cost on top of bare gRPC with TLS.

Figures (``--json`` prints them as one object); a ratio is of medians, 1 would cost nothing:

    uplink_ratio          Bare upload's time over that of a sealed one: hashed, signed, encrypted,
                          sent, verified, decrypted and hashed again, from memory to memory.
    downlink_ratio        The same for a model, sealed for this one device. A cohort shares one
                          sealing: ``downlink_shared_ratio`` leaves it out.
    uplink_durable_ratio  Bare upload from memory to memory over a sealed one to the coordinator's
                          disk: written, opened, checked, flushed.
    versus_unary          Time of one protobuf message with all of it over the sealed upload's;
                          ``versus_unary_raw``: of one message without protobuf.
    ..._core_ms           Processor time of both processes for one transfer, and of hashing,
                          encrypting, decrypting and copying the payload once.
    uplink_limit          Bare upload's processor time over that of one to which nothing is added
                          but encrypting, and decrypting in place of its copy. Both ends share the
                          cores here, and the bare upload keeps them busy: no order of the same
                          work takes ``uplink_ratio`` much further.
    ..._256               The same at 256 MiB.

Two processes, one device, loopback, chunks of 1 MiB on every side but the unary one. The streams
take turns, so that a busy moment hits all, in an order that turns too; what goes to the disk or in
one message comes apart. Buffers are made once; ``comparators/`` holds the bare sides. All streams,
the bare ones too, run in processes that keep freed memory, as coordinator and training process do;
the one message in processes as gRPC finds them.
"""

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import psutil

from benchmarks.comparators import bare_stream, unary_message
from benchmarks.parts.figures import benchmark_parser, show_figures
from benchmarks.parts.sealed_stream import SEAL_NOW, Device, DiskSide, MemorySide
from benchmarks.parts.stage_budget import stage_core_ms
from benchmarks.parts.two_parties import Parties, drawn_vector, schema_of_size
from models.vector.codec import encode
from privacy.foundation.memory_pool import keep_freed_memory
from privacy.sealing.chunk_digest import chunks_of

MIB = 1 << 20
SIZES_MIB = (64, 256)
_UNARY_RUNS = 5
Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Ports:
    """Say where each side listens."""

    memory: int
    disk: int
    unary: int


def payload_of(payload_bytes: int) -> memoryview:
    """Return the payload that every side moves."""
    schema = schema_of_size(payload_bytes)
    return memoryview(encode(schema, drawn_vector(schema))).cast("B")


async def serve(folder: Path, payload_bytes: int, ports: Connection) -> None:
    """Open all listeners, tell their ports, and serve until the other end hangs up."""
    parties = Parties.load(folder)
    payload, buffer = payload_of(payload_bytes), memoryview(bytearray(payload_bytes))
    bare = bare_stream.BareStream([bytes(chunk) for chunk in chunks_of(payload)], buffer)
    credentials = grpc.ssl_server_credentials(
        [(parties.coordinator.tls_key_pem, parties.coordinator.tls_certificate_pem)],
        root_certificates=parties.coordinator.authority_pem,
        require_client_auth=True,
    )
    memory, disk = grpc.aio.server(), grpc.aio.server()
    unary = grpc.aio.server(options=unary_message.OPTIONS)
    sealed = MemorySide(parties, payload, buffer)
    memory.add_generic_rpc_handlers((bare.handler(), sealed.handler()))
    disk.add_generic_rpc_handlers((DiskSide(parties, payload_bytes, folder).handler(),))
    unary.add_generic_rpc_handlers((unary_message.handler(),))
    listeners = (memory, disk, unary)
    numbers = [each.add_secure_port("localhost:0", credentials) for each in listeners]
    for each in listeners:
        await each.start()
    ports.send(Ports(*numbers))
    await asyncio.to_thread(ports.poll, None)
    for each in listeners:
        await each.stop(None)


def serve_in_process(folder: Path, payload_bytes: int, ports: Connection, tuned: bool) -> None:
    """Run ``serve``; for a process of its own, with its memory as a coordinator's if ``tuned``."""
    if tuned:
        keep_freed_memory()
    asyncio.run(serve(folder, payload_bytes, ports))


@dataclass(frozen=True)
class Cost:
    """Hold what one transfer costs.

    Attributes:
        seconds: Median time.
        core_s: Mean processor seconds of both processes; the system counts in steps of 10 ms.
    """

    seconds: float
    core_s: float


async def take_turns(
    sides: dict[str, tuple[int, Work]], processes: Sequence[psutil.Process]
) -> dict[str, Cost]:
    """Return the cost of each side over its number of runs, after one to warm up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(1 + max(runs for runs, _ in sides.values())):
        names = list(sides)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            runs, work = sides[name]
            if turn > runs:
                continue
            start, core_s = time.perf_counter(), core_seconds(processes)
            await work()
            taken = time.perf_counter() - start
            times[name].append((taken, core_seconds(processes) - core_s))
    return {name: cost_of(each[1:]) for name, each in times.items()}


def core_seconds(processes: Sequence[psutil.Process]) -> float:
    """Return the processor seconds that processes have used so far."""
    used = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in used)


def cost_of(runs: Sequence[tuple[float, float]]) -> Cost:
    """Return the cost of a side from the seconds and processor seconds of its runs."""
    seconds, core_s = zip(*runs, strict=True)
    return Cost(statistics.median(seconds), statistics.fmean(core_s))


async def measure_sides(
    folder: Path, payload_bytes: int, ports: Ports, there: psutil.Process, *, runs: int, tuned: bool
) -> dict[str, Cost]:
    """Return the cost of the streams, or of the one message where the processes are not tuned.

    ``there`` is the other end's process.
    """
    processes = (psutil.Process(), there)
    parties = Parties.load(folder)
    payload, buffer = payload_of(payload_bytes), memoryview(bytearray(payload_bytes))
    chunks, whole = [bytes(chunk) for chunk in chunks_of(payload)], bytes(payload)
    credentials = grpc.ssl_channel_credentials(
        parties.device.authority_pem,
        parties.device.tls_key_pem,
        parties.device.tls_certificate_pem,
    )
    device = Device(parties, payload, buffer)
    memory = grpc.aio.secure_channel(f"localhost:{ports.memory}", credentials)
    disk = grpc.aio.secure_channel(f"localhost:{ports.disk}", credentials)
    unary = grpc.aio.secure_channel(
        f"localhost:{ports.unary}", credentials, options=unary_message.OPTIONS
    )
    async with memory, disk, unary:
        if not tuned:
            return await take_turns(
                {
                    "unary_up": (_UNARY_RUNS, lambda: unary_message.send(unary, whole)),
                    "unary_raw_up": (_UNARY_RUNS, lambda: unary_message.send_raw(unary, whole)),
                },
                processes,
            )
        streamed = await take_turns(
            {
                "bare_up": (runs, lambda: bare_stream.send(memory, chunks)),
                "sealed_up": (runs, lambda: device.send(memory)),
                "bare_down": (runs, lambda: bare_stream.fetch(memory, buffer)),
                "sealed_down": (runs, lambda: device.fetch(memory, SEAL_NOW)),
                "shared_down": (runs, lambda: device.fetch(memory)),
            },
            processes,
        )
        # Apart, for what it leaves to the system: pages to write out.
        durable: dict[str, tuple[int, Work]] = {
            "durable_up": (runs, lambda: device.send_durably(disk))
        }
        return streamed | await take_turns(durable, processes)


def measure(size_mib: int, runs: int, *, tuned: bool) -> dict[str, Cost]:
    """Start the other end and return the cost of the streams, or of the one message."""
    with tempfile.TemporaryDirectory(prefix="sotto-transport-") as name:
        folder = Path(name)
        Parties.certify(folder)
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=serve_in_process, args=(folder, size_mib * MIB, there, tuned)
        )
        process.start()
        try:
            there.close()
            other = psutil.Process(process.pid)
            return asyncio.run(
                measure_sides(folder, size_mib * MIB, here.recv(), other, runs=runs, tuned=tuned)
            )
        finally:
            here.close()
            process.join()


def figures_of(costs: dict[str, Cost], size_mib: int) -> dict[str, float]:
    """Return the figures of one size; those of 64 MiB have the plain names."""
    times = {side: cost.seconds for side, cost in costs.items()}
    stages = stage_core_ms(payload_of(size_mib * MIB))
    added_ms = stages["encrypt"] + stages["decrypt"] - stages["copy"]
    bare_core_ms = costs["bare_up"].core_s * 1e3
    ratios = {
        "uplink_ratio": times["bare_up"] / times["sealed_up"],
        "downlink_ratio": times["bare_down"] / times["sealed_down"],
        "downlink_shared_ratio": times["bare_down"] / times["shared_down"],
        "uplink_durable_ratio": times["bare_up"] / times["durable_up"],
        "versus_unary": times["unary_up"] / times["sealed_up"],
        "versus_unary_raw": times["unary_raw_up"] / times["sealed_up"],
        "uplink_limit": bare_core_ms / (bare_core_ms + added_ms),
        **{f"{side}_ms": seconds * 1e3 for side, seconds in times.items()},
        **{f"{side}_core_ms": cost.core_s * 1e3 for side, cost in costs.items()},
        **{f"{stage}_core_ms": core_ms for stage, core_ms in stages.items()},
    }
    suffix = "" if size_mib == SIZES_MIB[0] else f"_{size_mib}"
    return {f"{name}{suffix}": value for name, value in ratios.items()}


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__, quick="64 MiB only, 7 runs instead of 15")
    arguments = parser.parse_args()
    sizes = SIZES_MIB[:1] if arguments.quick else SIZES_MIB
    runs = 7 if arguments.quick else 15
    # First, in processes as gRPC finds them; then those whose memory is a coordinator's.
    one_message = {size_mib: measure(size_mib, runs, tuned=False) for size_mib in sizes}
    keep_freed_memory()
    figures: dict[str, float] = {}
    for size_mib in sizes:
        streams = measure(size_mib, runs, tuned=True)
        figures |= figures_of(streams | one_message[size_mib], size_mib)
    show_figures(
        figures, f"Transport of {' and '.join(map(str, sizes))} MiB", as_json=arguments.json
    )


if __name__ == "__main__":
    main()
