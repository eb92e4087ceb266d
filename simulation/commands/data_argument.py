"""Add ``--data`` to a subcommand: where a data set lies, refused where there is nothing.

A set that comes with sotto needs no folder and looks at none, so a mistyped one would pass unseen.
The environment's name is not looked at here: it is set once for all commands, and a command that
needs no data set may run while that disk is away. A set that does need it says so itself.
"""

import argparse
from pathlib import Path


def add_data(parser: argparse.ArgumentParser, default: Path | None = None) -> None:
    """Add the flag; ``default`` is what the environment names, where the caller has asked it."""
    parser.add_argument(
        "--data",
        type=_existing,
        default=default,
        help="where the data set lies (default: $SOTTO_DATA)",
    )


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no {path}")
    return path
