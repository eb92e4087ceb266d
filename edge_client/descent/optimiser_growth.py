"""Let an optimiser's state follow a model that gets more layers."""

import torch
from torch import Tensor

from edge_client.descent.optimisers import STEP, OptimiserState
from models.networks.role_vectors import put_part
from models.plan.plan import Plan, plan_schema
from models.plan.stages import earlier_stages
from models.vector.named_parts import is_statistic
from models.vector.schema import Role, Schema


def grow_optimiser_state(state: OptimiserState, plan: Plan) -> OptimiserState:
    """Return a state of this or an earlier growth stage, with zeros for the layers since."""
    after = _stepped_schema(plan)
    for staged in earlier_stages(plan):
        before = _stepped_schema(staged)
        if all(flat.numel() == _length(key, before) for key, flat in state.items()):
            return {key: _grown(key, flat, before, after) for key, flat in state.items()}
    return state


def _grown(key: str, flat: Tensor, before: Schema, after: Schema) -> Tensor:
    grown = torch.zeros(_length(key, after))
    if key == STEP:
        names = list(after.slices)
        grown[[names.index(name) for name in before.slices]] = flat
    else:
        put_part(grown, after, before, flat)
    return grown


def _length(key: str, schema: Schema) -> int:
    return len(schema.tensors) if key == STEP else schema.element_count


def _stepped_schema(plan: Plan) -> Schema:
    """Return what ``trained_schema`` returns of the plan's network, without building it."""
    return Schema(
        tuple(
            spec
            for spec in plan_schema(plan).tensors
            if spec.role is not Role.FROZEN and not is_statistic(spec.name)
        )
    )
