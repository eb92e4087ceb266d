"""Keep with a finished run which start it began with: a later version may ship another."""

from hashlib import sha256
from pathlib import Path

import msgspec

from benchmarks.tables.definition import TableDefinition
from benchmarks.tables.records import Outcome, RunRecord
from server.config.shipped_starts import shipped_start
from simulation.figures.metrics import Figures
from simulation.runs.checkpoint import RUN_FILE, RunDescription

_DIGEST = "start_sha256"


def with_start(table: TableDefinition, folder: Path, data: Path | None, final: Figures) -> Outcome:
    """Return a run's figures, and the digest of the shipped start that it began with.

    Args:
        table: Not needed.
        folder: Folder of the run.
        data: Not needed.
        final: The run's own figures; none of a lost run.
    """
    described = msgspec.json.decode((folder / RUN_FILE).read_bytes(), type=RunDescription)
    file = shipped_start(described.configuration.get("start_from", ""))
    if file is None:
        return Outcome(final=dict(final))
    return Outcome(final=dict(final), more={_DIGEST: sha256(file.read_bytes()).hexdigest()})


def starts_of(runs: list[RunRecord]) -> list[str]:
    """Return the digests of the starts of some runs, each once."""
    return sorted({run.more[_DIGEST] for run in runs if _DIGEST in run.more})
