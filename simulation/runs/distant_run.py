"""The part of a run on a cluster that its node does: a task of ``simulation.engines.node_tasks``.

The run has a folder of its own there, as long as it lasts. It tells every round, and with it from
time to time what changed in the folder. Under a guarantee it does so every round, before the round
is shown to anybody: what was released is never released again with other noise.
"""

import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.plugins.loaded import load_plugins
from simulation.config.simulation import SimulationConfig
from simulation.engines.node_tasks import Say
from simulation.engines.scratch import node_scratch
from simulation.figures.metrics import Figures, Value
from simulation.figures.progress import Both
from simulation.population.population import Population
from simulation.runs.runner import RunOptions, run_simulation
from simulation.runs.travelling import Changes, Sender, put

_SEND_S = 20.0


class Begun(NamedTuple):
    """The news that a run has its processors and begins."""


class RoundTold(NamedTuple):
    """The news of a finished round; ``changes`` are in the run's folder, None if not sent now."""

    figures: dict[str, Value]
    changes: Changes | None


class Outcome(NamedTuple):
    """The end of a run: its figures or an error, and what changed in its folder since the last.

    ``changes`` are None if the node could not even make the folder.
    """

    final: dict[str, Value] | None
    error: Exception | None
    changes: Changes | None


class Plugins:
    """The plugins that a run's own file names, loaded wherever this is unpickled."""

    def __init__(self, names: Sequence[str]) -> None:
        """Load them."""
        self._names = tuple(map(str, load_plugins(names)))

    def __reduce__(self) -> tuple[type["Plugins"], tuple[tuple[str, ...]]]:
        return Plugins, (self._names,)


class Parcel(NamedTuple):
    """What a node gets of a run, beside its population and the release that it starts from.

    Attributes:
        plugins: First, since the settings are checked as they are unpickled, by those plugins.
        folder: The run's folder where it is at home, for errors to name.
        content: What lies in it.
    """

    plugins: Plugins
    config: SimulationConfig
    tables: Mapping[str, Any]  # TOML values.
    options: RunOptions
    folder: str
    content: Changes


def make_distant_run(
    say: Say, parcel: Parcel, population: Population, start: Changes | None
) -> Outcome:
    """Make a run or what is left of it, and return how it ended."""
    say(Begun())
    try:
        with _without_main(), node_scratch() as scratch:
            return _made(say, parcel, population, start, scratch)
    except OSError as error:  # The node's disk is full.
        return Outcome(None, error, None)


def _made(
    say: Say, parcel: Parcel, population: Population, start: Changes | None, scratch: Path
) -> Outcome:
    folder, config = scratch / "run", parcel.config
    put(parcel.content, folder)
    names = {str(folder): parcel.folder}
    if start is not None:
        here = scratch / "start"
        put(start, here)
        # A release has several files; a packed model is one.
        here = here.joinpath(*start.names) if len(start.names) == 1 else here
        names[str(here)] = str(config.start_from)
        config = msgspec.structs.replace(config, start_from=str(here))
    sender = Sender(folder)
    sender.skip()
    teller = _Teller(say, sender, always_sends=config.privacy.guarantees_privacy)
    options = parcel.options._replace(reporter=Both(teller, parcel.options.reporter))
    final, error = None, None
    try:
        final = dict(run_simulation(config, parcel.tables, population, folder, options))
    # Raised at home, where it means what it means of a run there.
    except Exception as raised:
        error = _travelling(raised, names)
    return Outcome(final, error, sender.changes())


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide what Ray started this process with: every process of a run's pool would import it."""
    main = vars(sys.modules["__main__"])
    file = main.pop("__file__", None)
    try:
        yield
    finally:
        main |= {} if file is None else {"__file__": file}


class _Teller:
    """A listener on the node, who tells those at home."""

    def __init__(self, say: Say, sender: Sender, *, always_sends: bool) -> None:
        self._say = say
        self._sender = sender
        self._pause_s = 0.0 if always_sends else _SEND_S
        self._sent_at = time.monotonic()

    def round_finished(self, figures: Figures) -> None:
        """Tell of a round, and send what changed if it is time."""
        changes = None
        if time.monotonic() - self._sent_at >= self._pause_s:
            changes, self._sent_at = self._sender.changes(), time.monotonic()
        self._say(RoundTold(dict(figures), changes))


def _travelling(error: Exception, names: Mapping[str, str]) -> Exception:
    """Return an error that can travel, and names files as they are called at home."""
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # An error of a library, whose parts pickle does not know.
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.args = tuple(_renamed(part, names) for part in copy.args)
    if isinstance(copy, OSError):
        copy.filename = _renamed(copy.filename, names)
    return copy


def _renamed(part: object, names: Mapping[str, str]) -> object:
    if isinstance(part, str):
        for here, at_home in names.items():
            part = part.replace(here, at_home)
    return part
