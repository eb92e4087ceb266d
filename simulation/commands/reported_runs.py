"""Read runs for a page: what each computes, its figures, its ledger, and where settings differ.

Runs that differ by their seed alone are one group. Runs of different tasks or data sets are
refused: a perplexity of one text beside that of another invites a comparison that means nothing.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from models.plan.release_record import RECORD_FILE, ReleaseError, decode_release_record
from privacy.accounting.accountant import Reports, reports
from privacy.accounting.ledger_chain import check_end, verify_chain
from privacy.accounting.ledger_file import STORE_NAME, LedgerFile, read_ledger
from privacy.noise.plan_events import budget_of
from simulation.config.run_files import read_run_file
from simulation.config.simulation import SimulationConfig, config_from
from simulation.figures.metrics import Figures, read_metrics
from simulation.runs.checkpoint import FINAL_FILE, RELEASES_FOLDER, RUN_FILE, RunDescription

_SAME = ("task", "data.dataset")


class ReportedRun(NamedTuple):
    """One run, over or not.

    Attributes:
        name: Its folder, as far as it tells it from the others.
        settings: Every setting but the seed by its path, as text.
        rows: The figures of each round.
        final: The last figures; None of a run that is not over.
        ledger: Its ledger, checked, and what it spent; None where nothing is promised.
    """

    name: str
    folder: Path
    description: RunDescription
    config: SimulationConfig
    settings: Mapping[str, str]
    rows: Sequence[Figures]
    final: Figures | None
    ledger: tuple[LedgerFile, Reports] | None

    @property
    def model(self) -> tuple[int, str] | None:
        """Return the round of the model that counts and its digest, hex; None without one."""
        releases = self.folder / RELEASES_FOLDER
        name = "latest" if self.final is None else f"{int(self.final['model_round'] or 0):06d}"
        try:
            record = decode_release_record((releases / name / RECORD_FILE).read_bytes())
        except FileNotFoundError:
            return None
        except ReleaseError as error:
            raise ReleaseError(f"{releases / name}: {error}") from None
        return record.round, record.parameters_sha256


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Read runs in the order given.

    Raises:
        LedgerError: If a ledger was changed, or lost its end.
        MetricsError: If a line of figures is damaged.
        ValueError: If a folder holds no run or is given twice, or tasks or data sets differ.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("each run must be given once; leave out the second")
    beside = os.path.commonpath([folder.resolve().parent for folder in folders])
    spent: dict[object, Reports] = {}
    runs = [_read(folder, os.path.relpath(folder.resolve(), beside), spent) for folder in folders]
    for run in runs[1:]:
        for path in _SAME:
            first, own = runs[0].settings[path], run.settings[path]
            if own != first:
                raise ValueError(
                    f"runs of one report must have the same {path}, got {first} in "
                    f"{runs[0].folder} and {own} in {run.folder}: their figures do not compare; "
                    "make a report of each"
                )
    return runs


def groups_of(runs: Sequence[ReportedRun]) -> list[list[ReportedRun]]:
    """Return the runs that differ by their seed alone, together, in the order of the first ones."""
    groups: dict[object, list[ReportedRun]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    return list(groups.values())


def differing(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the paths of the settings that are not the same in all runs."""
    paths = dict.fromkeys(path for run in runs for path in run.settings)
    return [path for path in paths if len({run.settings.get(path) for run in runs}) > 1]


def _read(folder: Path, name: str, spent: dict[object, Reports]) -> ReportedRun:
    if not (folder / RUN_FILE).exists():
        raise ValueError(f"{folder} holds no run; give the folder of one")
    description = read_run_file(folder / RUN_FILE, RunDescription)
    config = config_from(description.configuration, str(folder / RUN_FILE))
    settings = _flat(msgspec.to_builtins(config))
    del settings["seed"]
    until = description.until
    final = folder / FINAL_FILE
    return ReportedRun(
        name=name,
        folder=folder,
        description=description,
        config=config,
        settings=settings | ({"until": f"{until.figure} {until.value:g}"} if until else {}),
        rows=read_metrics(folder),
        final=read_run_file(final, dict[str, Any]) if final.exists() else None,
        ledger=_ledger(folder, description.run, config, spent),
    )


def _ledger(
    folder: Path, run: str, config: SimulationConfig, spent: dict[object, Reports]
) -> tuple[LedgerFile, Reports] | None:
    """Return a run's checked ledger with what it spent; ``spent`` keeps the sums of equal ones."""
    budget = budget_of(config.privacy)
    if budget is None or not (folder / STORE_NAME).exists():
        return None
    ledger = read_ledger(folder)
    events = verify_chain(ledger.entries, run=run)
    check_end(ledger.entries, ledger.noted)
    key = (budget.delta, tuple(entry.event for entry in ledger.entries))
    if key not in spent:
        spent[key] = reports(events, budget.delta)
    return ledger, spent[key]


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, str]:  # TOML values.
    flat: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{path}{name}.")
        else:
            flat[f"{path}{name}"] = "" if value is None else str(value)
    return flat
