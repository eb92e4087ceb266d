"""Ask for a benchmark on the command line, and show the figures that it found."""

import argparse
import json
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

_SMALL = 1e-3


def benchmark_parser(description: str | None, *, quick: str) -> argparse.ArgumentParser:
    """Return what every benchmark can be asked for.

    Args:
        description: The module's docstring; its first line is shown.
        quick: Help text of ``--quick``.
    """
    parser = argparse.ArgumentParser(description=str(description).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="print one object of figures")
    return parser


def show_figures(figures: Mapping[str, float], title: str, *, as_json: bool) -> None:
    """Print figures: as one JSON object, or as a table for people."""
    if as_json:
        print(json.dumps(figures))
        return
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        table.add_row(name, _written(value))
    Console().print(table)


def _written(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.7f}".rstrip("0") if 0 < abs(value) < _SMALL else f"{value:,.3f}"
