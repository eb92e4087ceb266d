"""Keep what novel clients were fitted with, where a run keeps what its own clients keep.

So ``FinishedRun.kept_by`` and ``network_of`` find it; a later fit replaces it, and ``novel.json``
says how it was fitted. Nothing can be kept if part of the model is generated, since its embedding
belongs to the release, nor if no tensor is a client's own, since all are fitted then.
"""

from collections.abc import Mapping

import msgspec

from edge_client.personalisation.state import PersonalState, write_state
from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.config.run_files import read_run_file
from simulation.understanding.finished_run import FinishedRun

NOVEL_FILE = "novel.json"


class NovelFit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run's novel clients were fitted: epochs, and most seconds of speech, None for all."""

    epochs: int
    longest_s: float | None


def can_keep_fits(run: FinishedRun) -> bool:
    """Return whether what is fitted to a novel client is all of it what a client keeps itself."""
    layout = run.layout
    has_own = bool(layout.personal.tensors or layout.extras.tensors)
    return has_own and not run.method.generated.tensors


def keep_fits(run: FinishedRun, states: Mapping[str, PersonalState], fit: NovelFit) -> None:
    """Write what was fitted to each novel client at the run's model, by client.

    Raises:
        OSError: If the disk refuses.
    """
    layout, shelf = run.layout, run.folder.states
    path = run.folder.folder / NOVEL_FILE
    # Without it nobody reads the states: a fit that is cut short is none.
    path.unlink(missing_ok=True)
    for client, state in states.items():
        write_state(shelf.place(client, run.model_round), layout, state)
    write_atomically(path, msgspec.json.encode(fit), mode=READABLE)


def kept_fit(run: FinishedRun) -> NovelFit | None:
    """Return how the novel clients whose states are kept were fitted, or None if none were."""
    path = run.folder.folder / NOVEL_FILE
    return read_run_file(path, NovelFit) if path.exists() else None
