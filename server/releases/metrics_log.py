"""Append one JSON line for each released round to ``metrics.jsonl``, for people and plots.

It holds figures of the whole cohort, none of one device and none found after the release. A
restored run writes lines of rounds that it trains again: the last line of a round counts.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from privacy.foundation.strict_json import decode_json
from server.releases.publishing import ReleaseSummary

_LOG = logging.getLogger(__name__)


class _Line(msgspec.Struct, frozen=True):
    round: int


class MetricsLog:
    """The log in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_whole = True

    def write(self, releases: Sequence[ReleaseSummary]) -> None:
        """Append a line for each release; after a full disk, what is left of them.

        Raises:
            OSError: If the disk is full; write the same again.
        """
        if not self._is_whole:
            releases = self._missing(releases)
        self._is_whole = False
        with self._path.open("ab") as log:
            log.writelines(msgspec.json.encode(_figures(release)) + b"\n" for release in releases)
        self._is_whole = True

    def complete(self, releases: Sequence[ReleaseSummary]) -> None:
        """Append the lines that a crash or a full disk left out; one that was cut short goes."""
        missing = self._missing(releases)
        if missing:
            self.write(missing)
            _LOG.info("wrote the figures of %d rounds that %s lacked", len(missing), self._path)

    def _missing(self, releases: Sequence[ReleaseSummary]) -> list[ReleaseSummary]:
        written = self._whole_lines()
        return [release for release in releases if release.round_number not in written]

    def _whole_lines(self) -> set[int]:
        """Cut off a last line without its end, and return the rounds of all the others."""
        if not self._path.is_file():
            return set()
        content = self._path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(self._path, end)
        lines = filter(None, content[:end].splitlines())
        return {number for line in lines for number in _round_of(line)}


def _figures(release: ReleaseSummary) -> dict[str, object]:
    return {
        "round": release.round_number,
        "attempt": release.attempt,
        "model_sha256": release.parameters_sha256.hex(),
        "duration_s": release.duration_s,
        **release.metrics,
    }


def _round_of(line: bytes) -> tuple[int, ...]:
    """Return the round that a line tells of; none where the line is somebody else's."""
    try:
        return (decode_json(line, _Line).round,)
    except msgspec.DecodeError:
        return ()
