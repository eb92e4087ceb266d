"""Keep an optimiser's state between rounds in a file, where the plan asks for it.

The file is named after the schema's digest, so another model's state stays until the folder is
cleared. A state of an earlier growth stage of the same model is taken up.
"""

import io
from pathlib import Path

import numpy as np
import torch

from edge_client.descent.optimiser_growth import grow_optimiser_state
from edge_client.descent.optimisers import OptimiserState
from models.plan.plan import Plan
from models.plan.stages import earlier_stages
from models.vector.archives import read_arrays
from privacy.foundation.atomic_files import write_atomically


class OptimiserStateError(ValueError):
    """Raised when a kept state is not there or damaged; the text says which file."""


def read_optimiser_state(path: Path) -> OptimiserState:
    """Return what `write_optimiser_state` wrote.

    Raises:
        OptimiserStateError: If there is no such file, or it is damaged.
    """
    try:
        return {name: torch.from_numpy(array) for name, array in read_arrays(path).items()}
    # TypeError: text, or numbers of a kind that no optimiser keeps.
    except (OSError, ValueError, TypeError) as error:
        raise OptimiserStateError(f"{path} holds no optimiser state: {error}") from None


def write_optimiser_state(path: Path, state: OptimiserState, *, flush: bool = True) -> None:
    """Replace a stored state all at once; the file's folder must exist.

    Raises:
        OSError: If the disk is full; the old file is untouched.
    """
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: part.numpy() for name, part in state.items()})
    write_atomically(path, packed.getbuffer(), flush=flush)


def load_state(folder: Path, plan: Plan) -> OptimiserState | None:
    """Return the last round's state, grown to the plan's layers, or None if none can be read."""
    for staged in (plan, *earlier_stages(plan)):
        try:
            return grow_optimiser_state(read_optimiser_state(_path(folder, staged)), plan)
        except OptimiserStateError:
            continue
    # Momentum is a convenience: a device that lost it starts afresh, as in its first round.
    return None


def save_state(folder: Path, plan: Plan, state: OptimiserState | None) -> None:
    """Replace the kept state; nothing is written where the plan keeps none."""
    if state is None:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    write_optimiser_state(_path(folder, plan), state)


def _path(folder: Path, plan: Plan) -> Path:
    digest = bytes.fromhex(plan.schema_sha256).hex()
    return folder / f"{digest[:32]}-{plan.training.optimiser}.npz"
