"""Append one JSON line for each round to ``metrics.jsonl``, for people and plots.

A round that a crash repeats writes its line again; the last line of a round counts. The lines hold
figures of the model and of the whole cohort, never of one device.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from models.release_record import Metric


class MetricsLog:
    """Append to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, figures: Mapping[str, Metric]) -> None:
        """Append a line.

        Raises:
            OSError: If the disk is full.
        """
        with self._path.open("ab") as log:
            log.write(msgspec.json.encode(figures) + b"\n")
