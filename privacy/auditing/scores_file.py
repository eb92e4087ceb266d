"""Scores of canaries that were sent through a real federation.

The file is CSV: a header ``canary,score,included`` and one line a canary and round, ``included``
being 1 where the coin let it take part and 0 where not. Every canary has as many lines.
"""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privacy.auditing.scores import AuditError, Coins, Scores
from privacy.foundation.bounded_files import read_bounded

HEADER = ["canary", "score", "included"]

_LARGEST_BYTES = 64 << 20


class ScoresFile(NamedTuple):
    """The canaries of a file in the order of their first line, their scores and their coins.

    Scores are float64 of shape ``(rounds, canaries)``, coins booleans of the same.
    """

    names: list[str]
    scores: Scores
    included: Coins


def read_scores(path: Path) -> ScoresFile:
    """Return the scores in a file; AuditError if it breaks the rules above."""
    by_canary: dict[str, list[tuple[float, bool]]] = {}
    try:
        rows = csv.reader(io.StringIO(read_bounded(path, _LARGEST_BYTES).decode(), newline=""))
        if next(rows, None) != HEADER:
            raise AuditError(f"{path} must begin with the line {','.join(HEADER)}")
        for number, row in enumerate(rows, start=2):
            by_canary.setdefault(row[0] if row else "", []).append(_line(row, f"{path}:{number}"))
    except (csv.Error, UnicodeDecodeError) as error:
        raise AuditError(f"{path} must be CSV in UTF-8: {error}") from None
    counts = {len(lines) for lines in by_canary.values()}
    if len(counts) != 1:
        raise AuditError(
            f"{path} must have as many lines for every canary, it has {sorted(counts) or 'none'}"
        )
    table = np.array(list(by_canary.values()), dtype=np.float64)
    return ScoresFile(list(by_canary), table[:, :, 0].T, table[:, :, 1].T == 1)


def _line(row: list[str], where: str) -> tuple[float, bool]:
    try:
        _, score, included = row
        coin = {"0": False, "1": True}[included]
        return float(score), coin
    except (ValueError, KeyError):
        raise AuditError(
            f"{where} must read like canary-0001,0.25,1 with 1 for included and 0 for left out"
        ) from None
