"""Whole federations on this machine: ``sotto-simulate run`` and ``sweep`` as functions.

Each is a folder, as with the commands: the same call reads what an earlier one finished, and goes
on where one was interrupted.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from simulation.commands import runs
from simulation.commands.flags import WithData
from simulation.commands.runs import Request
from simulation.config.overrides import Override
from simulation.config.simulation import with_settings
from simulation.figures.metrics import read_metrics
from simulation.figures.threshold import parse_threshold
from sotto.runs import Run, Sweep

Settings = Mapping[str, Any]  # TOML values.


def simulate(
    preset_or_settings: str | Path | Settings,
    *,
    data: str | Path | Settings | None = None,
    method: str | None = None,
    until: str | None = None,
    workers: int = 1,
    out: str | Path | None = None,
    **settings: Any,  # TOML values.
) -> Run:
    """Run a federation to its end, or read the run if it was made before.

    Args:
        preset_or_settings: Preset, file ending in .toml, or the tables of one, which may extend a
            preset.
        data: Folder with data sets (None for $SOTTO_DATA), or settings of the table [data].
        method: Personalisation method in place of the preset's.
        until: Stop early, as ``"valid_perplexity=250"``.
        workers: Processes that train; 1 starts none.
        out: Folder of the run; None for one below ``runs``, named after everything given here.
        settings: Settings by table, as ``rounds={"cap": 5}``; a table changes those that it names,
            and None leaves one out that the preset has.

    Raises:
        ConfigError: If there is no such preset or setting; the text names those there are.
        ValueError: If a value cannot be used, or the folder holds another run.
        WorkerError: If a client could not be trained.
    """
    changes = _fixed(data, settings)
    request = _request(
        preset_or_settings, changes, data=data, method=method, until=until, workers=workers
    )
    tables = with_settings(request.tables(), changes)
    name = f"{request.short_name}-seed-{tables.get('seed')}"
    folder = Path(out) if out is not None else _folder(name, request, tables)
    with _compute_as_before():
        figures = runs.run_one(request, out=folder)
    return Run(folder=folder, figures=figures, rounds=read_metrics(folder))


def sweep(
    preset_or_settings: str | Path | Settings,
    over: Mapping[str, Sequence[Any]],  # TOML values.
    *,
    seeds: Sequence[int] = (1,),
    figure: str | None = None,
    data: str | Path | Settings | None = None,
    method: str | None = None,
    until: str | None = None,
    workers: int = 1,
    out: str | Path | None = None,
    **settings: Any,  # TOML values.
) -> Sweep:
    """Run every combination of some settings' values with every seed.

    Args:
        over: Values by path, as ``{"aggregation.attention_strength": [0, 0.5, 1]}``.
        seeds: Seeds, each a run of every combination.
        figure: Final figure to report; None for what runs of the task are compared by.
        until: As of ``simulate``; the table then has the number of rounds.

    The other arguments and the errors are those of ``simulate``.
    """
    fixed = _fixed(data, settings)
    varied = [Override(tuple(path.split(".")), tuple(values)) for path, values in over.items()]
    empty = [one.name for one in varied if not one.values]
    if empty:
        raise ValueError(f"{empty[0]} must have at least one value to sweep over, got none")
    request = _request(
        preset_or_settings,
        [*fixed, *varied],
        data=data,
        method=method,
        until=until,
        workers=workers,
    )
    base = with_settings(request.tables(), fixed)
    folder = Path(out) if out is not None else _folder(f"{request.short_name}-sweep", request, base)
    figure = figure or request.judged_by()
    with _compute_as_before():
        rows = runs.sweep(request, seeds=tuple(seeds), out=folder, figure=figure)
    return Sweep(folder=folder, figure=request.until.name if request.until else figure, rows=rows)


def _request(
    preset_or_settings: str | Path | Settings,
    changes: Sequence[Override],
    *,
    data: str | Path | Settings | None,
    method: str | None,
    until: str | None,
    workers: int,
) -> Request:
    if workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    folder = None if data is None or isinstance(data, Mapping) else Path(data)
    if folder is not None and not folder.exists():
        raise ValueError(f"data: there is no {folder}")
    given = preset_or_settings if isinstance(preset_or_settings, Mapping) else None
    return Request(
        name=str(preset_or_settings) if given is None else "settings",
        data=WithData(data=folder).data_folder,
        settings=changes,
        worker_count=workers,
        until=parse_threshold(until) if until else None,
        method=method,
        given=given,
    )


def _fixed(data: str | Path | Settings | None, settings: Settings) -> list[Override]:
    """Return the settings that every run has, the table [data] among them."""
    table = {"data": data} if isinstance(data, Mapping) else {}
    leaves = _leaves({**table, **settings})
    return [Override(path, (value,)) for path, value in leaves.items()]


def _leaves(settings: Settings, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the single settings by path: a table changes those that it names, no others."""
    found: dict[tuple[str, ...], Any] = {}  # TOML values.
    for name, value in settings.items():
        path = (*above, *name.split("."))
        found |= _leaves(value, path) if isinstance(value, Mapping) else {path: value}
    return found


def _folder(name: str, request: Request, tables: Settings) -> Path:
    """Return a folder that other settings do not share, so that a changed cell is another run."""
    computes = {
        "tables": tables,
        "varied": [[one.name, one.values] for one in request.settings],
        "until": request.until,
        "data": None if request.data is None else str(request.data),
    }
    encoded = msgspec.json.encode(computes, order="sorted")
    return Path("runs") / f"{name}-{hashlib.sha256(encoded).hexdigest()[:8]}"


@contextmanager
def _compute_as_before() -> Iterator[None]:
    """Give the process back its threads: a run takes one, to be repeatable to the bit."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
