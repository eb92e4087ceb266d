"""The start of a run: a draw from its seed, or a model that was learned before.

``start_from`` names the folder of a release. No guarantee of the run covers its parameters: they
must come from public text, or from a run whose own guarantee is counted beside this one's.
"""

from pathlib import Path

import torch
from torch import Tensor

from models.networks.flat_parameters import initial_parameters
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, released_schema
from models.settings.compression import release_step
from models.settings.model import schema_of
from models.vector.schema import Schema
from server.closing.release_steps import round_to_nearest
from server.config.federation import FederationConfig
from server.releases.files import read_release


class StartingModelError(ValueError):
    """Raised when a run cannot start from a release; names the folder and what differs."""


def starting_parameters(config: FederationConfig, plan: Plan) -> Tensor:
    """Return the parameters of round 0, in multiples of ``compression.downlink_step`` if it is set.

    They are flat float32, shape ``(elements,)``, in the order of the plan's ``released_schema``.

    Raises:
        ReleaseError: If ``start_from`` is no release.
        StartingModelError: If it is one of another model or of other words.
    """
    parameters = _chosen_start(config, plan)
    step = release_step(config.compression)
    return parameters if step is None else round_to_nearest(parameters, step)


def _chosen_start(config: FederationConfig, plan: Plan) -> Tensor:
    wanted = released_schema(plan)
    if config.start_from is None:
        whole = initial_parameters(config.model, config.seed)
        return part_of(whole, schema_of(config.model), wanted)
    folder = Path(config.start_from)
    stored = read_release(folder)
    there = released_schema(stored.plan)
    _check_model(folder, there, wanted)
    _check_layers(folder, stored.plan, plan)
    if _words(stored.plan) != _words(plan):
        raise StartingModelError(
            f"start_from must be a model with this run's word list; {folder} has another"
        )
    return part_of(torch.tensor(stored.parameters), there, wanted)


def _check_model(folder: Path, there: Schema, wanted: Schema) -> None:
    found = {spec.name: spec.shape for spec in there.tensors}
    for spec in wanted.tensors:
        if found.get(spec.name) != spec.shape:
            raise StartingModelError(
                f"start_from must have {spec.name} of shape {spec.shape}, but {folder} has "
                f"{found.get(spec.name, 'none')}; set [model] to what it was learned with"
            )


def _check_layers(folder: Path, there: Plan, wanted: Plan) -> None:
    """Refuse a model with layers that a first stage would drop without a word."""
    beyond = set(schema_of(there.model).slices) - set(schema_of(wanted.model).slices)
    if wanted.growth is not None and beyond:
        raise StartingModelError(
            f"start_from must be a model of the first stage of growth, {folder} has "
            f"{min(beyond)} besides; leave out growth"
        )


def _words(plan: Plan) -> str | None:
    return None if plan.vocabulary is None else plan.vocabulary.sha256
