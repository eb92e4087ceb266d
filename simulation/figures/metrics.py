"""One line of figures a round in ``metrics.jsonl``, flushed at once: a killed run loses nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.strict_json import decode_json

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FILE_NAME = "metrics.jsonl"
# A coordinator's names for the same figures, which `server.services.metrics` gives Prometheus.
_ON_BOARD = {
    "epsilon": "sotto_epsilon_spent/readers",
    "coordinator_epsilon": "sotto_epsilon_spent/coordinator",
    "bytes_up": "sotto_received_bytes_total",
    "bytes_down": "sotto_sent_bytes_total",
}

_REMEDY = "take that line out, and its round is missing in tables and pictures"

Value: TypeAlias = float | int | str | None
# One round's figures by name.
Figures: TypeAlias = Mapping[str, Value]


def in_words(value: Value) -> str:
    """Return a figure as people read it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class MetricsError(ValueError):
    """Raised when a metrics file cannot be read; the text names the file and the line."""


class MetricsWriter:
    """A writer of ``metrics.jsonl`` and, if asked, of TensorBoard's event files."""

    def __init__(
        self, folder: Path, *, keep_rounds: int = 0, with_tensorboard: bool = False
    ) -> None:
        """Open the file in ``folder``, dropping what lies after round ``keep_rounds``.

        Raises:
            MetricsError: If lines to be kept cannot be read.
        """
        path = folder / FILE_NAME
        kept = [row for row in read_metrics(folder) if _round_of(row) <= keep_rounds]
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in kept)
        write_atomically(path, lines, mode=READABLE)
        self._file = path.open("ab", buffering=0)
        self._board = _open_board(folder) if with_tensorboard else None

    def write(self, figures: Figures) -> None:
        """Append one round's figures; ``round`` must be among them."""
        self._file.write(msgspec.json.encode(figures) + b"\n")
        if self._board is not None:
            for name, value in figures.items():
                if isinstance(value, float | int) and name != "round":
                    self._board.add_scalar(_ON_BOARD.get(name, name), value, _round_of(figures))

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def round_of(row: Figures) -> int:
    """Return the round of a row that ``read_metrics`` returned."""
    return int(row["round"] or 0)


def read_metrics(folder: Path) -> list[Figures]:
    """Return the figures of every round in ``folder``, none if nothing was written.

    A last line cut off by a kill is left out.

    Raises:
        MetricsError: If any other line is not a JSON object with a round.
    """
    path = folder / FILE_NAME
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    rows: list[Figures] = []
    # Whole lines end in a newline, so what follows the last one was cut off.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = decode_json(line, dict[str, Value])
        except msgspec.DecodeError as error:
            raise MetricsError(
                f"{path}:{number} is no row of metrics: {error}; {_REMEDY}"
            ) from None
        if not isinstance(row.get("round"), int):
            raise MetricsError(f"{path}:{number} has no round; {_REMEDY}")
        rows.append(row)
    return rows


def series(rows: Sequence[Figures], name: str) -> tuple[list[int], list[float]]:
    """Return the rounds in which a figure was written, and its values."""
    points = [
        (_round_of(row), float(value))
        for row in rows
        if isinstance(value := row.get(name), int | float)
    ]
    return [point[0] for point in points], [point[1] for point in points]


def _round_of(figures: Figures) -> int:
    return int(figures["round"] or 0)


def _open_board(folder: Path) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))
