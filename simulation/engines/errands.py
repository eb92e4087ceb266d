"""What travels between a run and its workers on other machines.

A node needs no disk of the run's: what a client keeps to itself goes along as bytes and comes back
as bytes, and only the run writes it to its folder. A job that is lost with its node has changed
nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privacy.foundation.atomic_files import write_atomically
from simulation.workers.engine import Generated
from simulation.workers.jobs import Answer, Job

Bytes = NDArray[np.uint8]


class Outgoing(NamedTuple):
    """A job, and what its worker needs beside the model and the examples.

    Attributes:
        job: The job; its paths are the run's, and only their names mean something elsewhere.
        state: The client's personal state, as its file holds it; None before its first round.
        optimiser: The same for its optimiser.
        generated: The client's generated tensors, flat float32, where the method has some.
    """

    job: Job
    state: Bytes | None
    optimiser: Bytes | None
    generated: NDArray[np.float32] | None


class Incoming(NamedTuple):
    """What a job leaves beside its answer.

    Attributes:
        update: Flat float32; None of a client that diverged, and where nothing was trained.
        state: The client's next personal state, as its file is to hold it.
        optimiser: The same for its optimiser.
    """

    update: NDArray[np.float32] | None = None
    state: Bytes | None = None
    optimiser: Bytes | None = None


class Report(NamedTuple):
    """The answers to an errand, and the seconds that it took."""

    answers: list[Answer]
    seconds: float


def outgoing(job: Job, generated: Generated | None) -> Outgoing:
    """Pack a job for another machine; OSError if a state cannot be read."""
    return Outgoing(
        job,
        _contents(job.state),
        _contents(job.optimiser),
        None if generated is None else generated(job).numpy(),
    )


def keep(job: Job, incoming: Incoming) -> None:
    """Write what a client keeps to where the job says; the checkpoint flushes it."""
    for path, contents in (
        (job.next_state, incoming.state),
        (job.next_optimiser, incoming.optimiser),
    ):
        if path is not None and contents is not None:
            write_atomically(path, contents.data, flush=False)


def unpacked(errand: Sequence[Outgoing], folder: Path) -> list[Job]:
    """Return the jobs of an errand, each with a buffer and files of its own in a folder."""
    return [_unpacked(parcel, buffer, folder) for buffer, parcel in enumerate(errand)]


def _unpacked(parcel: Outgoing, buffer: int, folder: Path) -> Job:
    state, optimiser = folder / f"{buffer}.state", folder / f"{buffer}.optimiser"
    for path, contents in ((state, parcel.state), (optimiser, parcel.optimiser)):
        if contents is not None:
            path.write_bytes(contents.data)
    job = parcel.job
    return job._replace(
        buffer=buffer,
        state=None if parcel.state is None else state,
        next_state=None if job.next_state is None else _next(state),
        optimiser=None if parcel.optimiser is None else optimiser,
        next_optimiser=None if job.next_optimiser is None else _next(optimiser),
    )


def incoming(job: Job, update: NDArray[np.float32] | None) -> Incoming:
    """Pack what a job left behind, of the files that ``unpacked`` named."""
    return Incoming(update, _contents(job.next_state), _contents(job.next_optimiser))


def _next(path: Path) -> Path:
    return path.with_name(f"{path.name}.next")


def _contents(path: Path | None) -> Bytes | None:
    """Return a file's bytes; None where there is none."""
    if path is None or not path.exists():
        return None
    return np.fromfile(path, dtype=np.uint8)
