"""A cohort's clipped float32 updates, sealed on disk, to read chunk i of all of them at once."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from privacy.sealing.spool import SealedSpool
from server.aggregation.closing_workers import ClosingWorkers

CHUNK_ELEMENTS = 1 << 18
"""Elements of one update in one chunk: 1 MiB. Sums over chunks round by it, so it never varies."""

_BYTES = 4


class KeptUpdates:
    """The updates of one round in order of arrival; reading takes 1 MiB of memory for each."""

    def __init__(self, element_count: int, *, folder: Path | None = None) -> None:
        self._chunks = chunks_of(element_count)
        sizes = [_BYTES * (where.stop - where.start) for where in self._chunks]
        self._spool = SealedSpool(sizes, folder=folder)

    @property
    def count(self) -> int:
        """Return how many updates are kept."""
        return self._spool.record_count

    def append(self, values: Tensor, factor: float) -> None:
        """Keep ``factor`` times an update, flat float32, shape ``(elements,)``.

        Raises:
            OSError: If the disk is full.
        """
        for where in self._chunks:
            chunk = values[where] if factor == 1 else values[where] * factor
            self._spool.append(chunk.numpy().data.cast("B"))

    def chunks(self, workers: ClosingWorkers) -> Iterator[tuple[slice, Tensor]]:
        """Yield each chunk's place and rows, float32, ``(cohort, chunk elements)``, until the next.

        The workers read together.

        Raises:
            SpoolError: If the disk does not give back what was written.
        """
        longest = max((where.stop - where.start for where in self._chunks), default=0)
        memory = np.empty((self.count, longest), dtype=np.float32)
        for index, where in enumerate(self._chunks):
            rows = memory[:, : where.stop - where.start]
            workers.run(
                [
                    partial(self._read, rows, index, range(first, self.count, workers.count))
                    for first in range(min(workers.count, self.count))
                ]
            )
            yield where, torch.from_numpy(rows)

    def _read(self, rows: NDArray[np.float32], index: int, records: Iterable[int]) -> None:
        for record in records:
            rows[record] = np.frombuffer(self._spool.read(record, index), dtype=np.float32)

    def close(self) -> None:
        """Let the file go."""
        self._spool.close()


def chunks_of(element_count: int) -> list[slice]:
    """Return where the chunks of a flat vector lie; none of an empty one."""
    starts = range(0, element_count, CHUNK_ELEMENTS)
    return [slice(start, min(start + CHUNK_ELEMENTS, element_count)) for start in starts]
