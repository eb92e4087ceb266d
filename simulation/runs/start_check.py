"""The start that a run's settings name, read before the run has a folder."""

from pathlib import Path

from models.plan.plan import Plan
from server.releases.starting_model import check_starting_model
from simulation.config.simulation import SimulationConfig
from simulation.runs.checkpoint import RUN_FILE


def check_start(config: SimulationConfig, plan: Plan, folder: Path) -> None:
    """Refuse a start that a new run could not begin with, so that the folder stays free.

    A folder that holds a run is left alone: what was recorded there goes on without the file.

    Raises:
        PackedModelError: If ``start_from`` is a file that is damaged or no packed model.
        ReleaseError: If it is no release.
        StartingModelError: If it is a model of other sizes or of other words, or if its
            hypernetwork cannot be read.
    """
    if config.start_from is not None and not (folder / RUN_FILE).exists():
        check_starting_model(config, plan)
