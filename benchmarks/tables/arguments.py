"""The arguments of every command that makes tables."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from benchmarks.tables.definition import TableDefinition

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """Say which runs of a table are a command's: the I-th of every N, as ``I/N`` is read.

    Attributes:
        first: Place of the first, from 0.
        of: N.
    """

    first: int = 0
    of: int = 1

    def taken(self, runs: Sequence[T]) -> Sequence[T]:
        """Return this share of all runs."""
        return runs[self.first :: self.of]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read ``I/N``.

        Raises:
            ArgumentTypeError: If it is anything else.
        """
        part, slash, of = text.partition("/")
        if not (slash and part.isdecimal() and of.isdecimal() and 1 <= int(part) <= int(of)):
            raise argparse.ArgumentTypeError(
                f"a share must be I/N with I from 1 to N, such as 1/2, got {text!r}"
            )
        return cls(int(part) - 1, int(of))


def parser_of(description: str, tables: Mapping[str, TableDefinition]) -> argparse.ArgumentParser:
    """Return the parser of a command that makes some of these tables."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", action="append", choices=sorted(tables), help="make this table")
    parser.add_argument("--data", type=Path, help="folder with the data sets ($SOTTO_DATA)")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path("docs/results/runs"),
        help="folder of finished runs' lines",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/tables"),
        help="folder of runs under way; a finished run's may be deleted (default: runs/tables)",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of tables")
    parser.add_argument(
        "--workers",
        type=int,
        help="processes that train in a run (default: one a core; with --engine ray one)",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where runs are made: one after the other here, or side by side on a Ray cluster",
    )
    parser.add_argument(
        "--address",
        help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT (default: one of this machine)",
    )
    parser.add_argument(
        "--share",
        type=Share.read,
        default=Share(),
        metavar="I/N",
        help="run the I-th of every N runs and write no table: N commands side by side, with "
        "--workers 1 each (default: 1/1, all of them and the table)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="rounds of every run, where the time allows no more; growth and falling steps keep "
        "the lengths of the table",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to train")
    parser.add_argument(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="clients that one process trains at once, for images (default: 1)",
    )
    parser.add_argument("--list", action="store_true", help="show the tables and their time")
    parser.add_argument("--quick", action="store_true", help="under a minute, embedded data")
    parser.add_argument("--json", action="store_true", help="print one object of figures")
    return parser
