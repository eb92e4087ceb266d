"""A round of sealed updates, closed as the coordinator closes it; each number of workers apart.

One process for each number of workers, so that each has a peak memory of its own. They wait for
each other, so that rounds alternate.
"""

import hashlib
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.parts.two_parties import NONCE, RUN, Parties
from models.compression.update_format import PlainFormat, UpdateFormats
from models.vector.codec import encode
from models.vector.schema import Schema, TensorSpec
from privacy.foundation.memory_pool import keep_freed_memory
from privacy.noise.settings import NoNoise
from privacy.sealing.envelope import Direction, MessageContext, seal
from server.aggregation.closing_workers import ClosingWorkers, buffers_wanted
from server.aggregation.screening import Screen
from server.aggregation.screening_settings import ScreeningSettings
from server.aggregation.settings import AttentiveSettings
from server.closing.close import Closing, close_round
from server.closing.summing import Contribution, Examined
from server.uplink.sealed_payloads import SealedUpdate
from server.uplink.sealed_updates import UpdateOpener
from server.uplink.update_buffers import buffer_count_for

FILE_COUNT = 96
"""Sealed updates on disk, 384 MB: no cache of a processor holds them, and no opener's memory."""

CLIPPING_NORM = 1.0


def model_schema(elements: int) -> Schema:
    """Return tensors of a keyboard's proportions, in two layers; a thousand elements at least."""
    tied = elements * 6 // 10
    sizes = {"embedding.weight": tied, "gru.weight": elements - tied - 99, "gru.bias": 99}
    return Schema(
        tuple(
            TensorSpec(name=name, shape=(size,), layer=name.split(".")[0])
            for name, size in sizes.items()
        )
    )


@dataclass(frozen=True)
class SealedCohort:
    """A cohort whose sealed updates lie in files; they repeat after ``FILE_COUNT`` clients.

    Every one of them is read, opened, measured and added again: nothing tells the coordinator that
    it has seen such an update before.
    """

    parties: Parties
    schema: Schema
    files: tuple[SealedUpdate, ...]
    client_count: int

    @classmethod
    def make(cls, folder: Path, elements: int, client_count: int) -> "SealedCohort":
        """Draw updates of different norms, two of them beyond the clip, and seal them."""
        parties, schema = Parties.certify(folder), model_schema(elements)
        generator = np.random.default_rng(0)
        files = []
        for slot in range(min(FILE_COUNT, client_count)):
            update = generator.standard_normal(elements, dtype=np.float32)
            share = 1.5 if slot in {3, 40} else 0.3 + slot / 100
            update *= np.float32(share * CLIPPING_NORM / np.sqrt(elements))
            files.append(_sealed(folder / f"{slot}.sealed", update, slot, parties, schema))
        return cls(parties, schema, tuple(files), client_count)

    def opener(self, worker_count: int) -> UpdateOpener:
        """Return what opens them, with the memory that a coordinator gives it."""
        formats = UpdateFormats([PlainFormat(self.schema)])
        wanted = buffers_wanted(worker_count)
        return UpdateOpener(
            formats,
            self.parties.coordinator,
            buffer_count=buffer_count_for(formats.payload_bytes, self.client_count, closing=wanted),
            worker_count=worker_count,
        )

    def terms(self, workers: ClosingWorkers) -> Closing:
        """Return the terms of their round."""
        return Closing(
            schema=self.schema,
            aggregation=AttentiveSettings(),
            privacy=NoNoise(clipping_norm=CLIPPING_NORM),
            slot_count=self.client_count,
            generator=torch.Generator(),
            screen=Screen(ScreeningSettings(), clipping_norm=CLIPPING_NORM),
            workers=workers,
        )

    def sealed(self) -> Iterator[SealedUpdate]:
        """Yield a sealed update for every client."""
        for slot in range(self.client_count):
            yield self.files[slot % len(self.files)]

    def close(self, opener: UpdateOpener) -> Tensor:
        """Open, measure and add all updates, and return the next parameters."""
        with opener.workers() as workers:
            terms = self.terms(workers)

            def look(update: Tensor) -> tuple[Tensor, Examined]:
                return update, terms.examine(update)

            with opener.ahead(self.sealed(), look, workers) as opened:
                contributions = (
                    Contribution(slot, one[0], 1, examined=one[1])
                    for slot, one in enumerate(opened)
                    if one is not None
                )
                closed = close_round(torch.zeros(self.schema.element_count), contributions, terms)
        opener.forget()
        if closed.contribution_count != self.client_count:
            raise RuntimeError(f"all updates must count, got {closed.contribution_count}")
        return closed.parameters


def _sealed(
    path: Path,
    update: "np.ndarray[tuple[int], np.dtype[np.float32]]",
    slot: int,
    parties: Parties,
    schema: Schema,
) -> SealedUpdate:
    context = MessageContext(
        direction=Direction.UPLINK,
        run=RUN,
        round_number=1,
        slot=slot,
        lease_nonce=NONCE,
        base_sha256=bytes(32),
        schema_sha256=schema.sha256,
        deadline_ms=0,
    )
    message = seal(
        encode(schema, update),
        context,
        sender=parties.device,
        recipient=parties.coordinator.wrapping.certified,
    )
    with path.open("wb") as file:
        for piece in message.views():
            file.write(piece)
    return SealedUpdate(
        path=path,
        context=context,
        message_id=message.message_id,
        senders=[parties.device.signing.certified],
    )


@dataclass(frozen=True)
class ClosedOnce:
    """One close: seconds on the clock and of the processor, and the SHA-256 of what came of it.

    Memory of its process in MB of 10^6 bytes: before the first close, and the peak so far.
    """

    seconds: float
    processor_s: float
    sha256: str
    idle_mb: float
    peak_mb: float


class ClosingProcess:
    """A process that closes the same round with the same number of workers whenever it is asked."""

    def __init__(self, cohort: SealedCohort, worker_count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, cohort, worker_count))
        self._process.start()
        theirs.close()

    def close_round(self) -> ClosedOnce:
        """Close it once more, and wait for that."""
        self._ours.send(True)
        closed = self._ours.recv()
        if not isinstance(closed, ClosedOnce):
            raise TypeError(f"the process must answer with a close, got {type(closed).__name__}")
        return closed

    def end(self) -> None:
        """End the process."""
        self._ours.send(False)
        self._process.join()


def _serve(connection: Connection, cohort: SealedCohort, worker_count: int) -> None:
    # Both as in a coordinator.
    torch.set_num_threads(1)
    keep_freed_memory()
    opener, idle_mb = cohort.opener(worker_count), _resident_mb()
    while connection.recv():
        began, spent = time.perf_counter(), time.process_time()
        parameters = cohort.close(opener)
        seconds, processor_s = time.perf_counter() - began, time.process_time() - spent
        connection.send(
            ClosedOnce(
                seconds,
                processor_s,
                hashlib.sha256(parameters.numpy().tobytes()).hexdigest(),
                idle_mb,
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
            )
        )
    connection.close()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6
