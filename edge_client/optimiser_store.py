"""Keep a device's optimiser state between rounds, where the plan asks for it.

The state belongs to one model: it is filed under the schema's digest, and a state of another
model is left alone until the device's folder is cleared.
"""

import io
import zipfile
from pathlib import Path

import numpy as np
import torch

from edge_client.optimisers import OptimiserState
from models.plan import Plan
from privacy.atomic import write_atomically


def load_state(folder: Path, plan: Plan) -> OptimiserState | None:
    """Return what the last round left, or None if it left nothing that can be read."""
    try:
        with np.load(_path(folder, plan), allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        # Momentum is a convenience: a device that lost it starts afresh, as in its first round.
        return None


def save_state(folder: Path, plan: Plan, state: OptimiserState | None) -> None:
    """Replace the kept state; nothing is written where the plan keeps none."""
    if state is None:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **{name: part.numpy() for name, part in state.items()})
    write_atomically(_path(folder, plan), packed.getbuffer())


def _path(folder: Path, plan: Plan) -> Path:
    return folder / f"{plan.schema_sha256[:32]}-{plan.training.optimiser}.npz"
