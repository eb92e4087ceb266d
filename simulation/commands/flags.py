"""Flags that several subcommands share, as settings (``privacy.foundation.flags``).

A missing ``--data`` folder is refused even for a set that comes with sotto, where a mistyped one
would pass unseen. The environment's is not checked: a command that needs no data set may run while
that disk is away.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from privacy.foundation.flags import Flag

if TYPE_CHECKING:
    from simulation.commands.runs import Request

DATA_VARIABLE = "SOTTO_DATA"


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no {path}")
    return path


class WithData(msgspec.Struct, frozen=True, kw_only=True):
    """A command that may read a data set.

    Attributes:
        data: Where the data set lies (default: $SOTTO_DATA).
    """

    data: Annotated[Path | None, Flag(parse=_existing)] = None

    @property
    def data_folder(self) -> Path | None:
        """Return where data sets lie: the environment is read here and nowhere else."""
        named = os.environ.get(DATA_VARIABLE)
        return self.data or (Path(named) if named else None)


class Settled(WithData, frozen=True, kw_only=True):
    """A federation's settings.

    Attributes:
        name: Preset, or a file ending in .toml.
        set: Change a setting, as rounds.quorum=5; may be repeated; sweep takes lists.
        json: Print the figures as JSON.
    """

    name: Annotated[str, Flag("PRESET_OR_FILE", positional=True)]
    set: Annotated[list[str], Flag("PATH=VALUE")] = msgspec.field(default_factory=list)
    json: bool = False

    def request(self) -> "Request":
        """Put the settings together, as every subcommand that runs rounds takes them."""
        from simulation.commands.runs import Request
        from simulation.config.overrides import Override, parse_override
        from simulation.figures.threshold import parse_threshold

        given = msgspec.structs.asdict(self)
        settings = [parse_override(text) for text in self.set]
        for name, path in (("rounds", ("rounds", "cap")), ("seed", ("seed",))):
            if given.get(name) is not None:
                settings.append(Override(path, (given[name],)))
        until = given.get("until")
        return Request(
            name=self.name,
            data=self.data_folder,
            settings=settings,
            worker_count=given.get("workers"),
            until=parse_threshold(until) if until else None,
            method=given.get("method"),
            with_tensorboard=given.get("tensorboard", False),
            together=given.get("together", 1),
            device=given.get("device", "cpu"),
            engine=given.get("engine", "local"),
            address=given.get("address"),
        )


class Rounds(Settled, frozen=True, kw_only=True):
    """Rounds to run.

    Attributes:
        rounds: Largest number of rounds (sets rounds.cap).
        workers: Processes that train (default: one a processor core; on a cluster, in each run of a
            sweep or a search, one).
        engine: Engine of the work: processes of this machine, or a Ray cluster (needs sotto[ray]).
        address: Ray cluster to run on: auto, HOST:PORT or ray://HOST:PORT (default: one of this
            machine alone, started and stopped with the command).
    """

    rounds: int | None = None
    workers: int | None = None
    engine: Literal["local", "ray"] = "local"
    address: str | None = None


class Runs(Rounds, frozen=True, kw_only=True):
    """Runs of a federation, each to its end.

    Attributes:
        until: Stop at the first round whose FIGURE reaches VALUE (rising for figures such as
            accuracy, falling otherwise); sweep then reports the number of rounds.
        method: Personalisation method that takes the place of the preset's, as fedavg, fedper,
            fedtp or fedtp-knn (sets [personalisation]).
        together: Clients that one process trains at once; for images.
        device: Processor on which clients train.
    """

    until: Annotated[str | None, Flag("FIGURE=VALUE")] = None
    method: str | None = None
    together: Annotated[int, Flag("N")] = 1
    device: Literal["cpu", "cuda"] = "cpu"
