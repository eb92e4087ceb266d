"""The subcommand ``sotto-simulate partition``: deal a data set, and show who got what."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from privacy.foundation.flags import Flag
from simulation.commands.flags import Settled

if TYPE_CHECKING:
    from simulation.population.partition_record import PartitionRecord

_SHOWN_CLIENTS = 20


class Dealt(Settled, frozen=True, kw_only=True):
    """A data set to deal.

    Attributes:
        out: JSON file to write: every client's examples.
        plot: Picture to write: clients against classes, and the noise of their cameras.
    """

    out: Path | None = None
    plot: Annotated[Path | None, Flag("PNG")] = None


def partition(asked: Dealt) -> int:
    """Deal a data set, and show who got what."""
    from privacy.foundation.atomic_files import READABLE, write_atomically
    from simulation.config.simulation import config_from, read_tables, with_settings
    from simulation.figures.progress import tell
    from simulation.population.dealing import build_population

    request = asked.request()
    config = config_from(with_settings(read_tables(request.name), request.settings), request.name)
    population = build_population(config, request.data)
    record = population.partition
    if record is None:
        raise ValueError(f"{request.name} deals nothing")
    tell(population.notes)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(asked.out, record.encode(), mode=READABLE)
    if asked.plot is not None:
        from simulation.figures.partition_plot import plot_partition

        plot_partition(record, asked.plot)
    if asked.json:
        sys.stdout.write(f"{msgspec.json.encode(record.figures()).decode()}\n")
    else:
        _show(record)
    return 0


def _show(record: "PartitionRecord") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{record.dataset}, {record.partition}, seed {record.seed}")
    headings = ["client", "to train on", "to test on", "classes" if record.classes else "owner"]
    if record.pixel_noise:
        headings.append("pixel noise, σ")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("client", "owner") else "right")
    for client in record.clients[:_SHOWN_CLIENTS]:
        last = [client.owner]
        if record.classes:
            last = [str(sum(count > 0 for count in client.train_counts))]
        if client.pixel_noise is not msgspec.UNSET:
            last.append(f"{client.pixel_noise:.3g}")
        table.add_row(client.name, str(client.train_size), str(client.test_size), *last)
    console = Console(file=sys.stdout)
    console.print(table)
    hidden = len(record.clients) - _SHOWN_CLIENTS
    if hidden > 0:
        console.print(f"and {hidden} more clients; --out writes them all")
    for part in ("train", "test"):
        spread = record.figures()[part]
        if isinstance(spread, dict):
            shown = ", ".join(f"{name} {value}" for name, value in spread.items())
            console.print(f"{record.unit} to {part}: {shown}", highlight=False)
