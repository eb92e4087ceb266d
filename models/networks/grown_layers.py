"""Give a model its next layers: the same ones wherever they are made.

The layers of a stage follow from the plan, its seed and the stage. So coordinator, simulation and a
device that was away for many rounds compute the same numbers, and none of them is sent.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.2: new layers on top, old ones kept.
    [Net2Net] Chen et al., ICLR 2016, arXiv:1511.05641: growing without changing the function.
"""

from collections.abc import Callable

from torch import Tensor

from models.networks.flat_parameters import check_flat, initial_parameters
from models.networks.role_vectors import part_of, put_part
from models.plan.plan import Plan
from models.plan.stages import plan_at_stage
from models.settings.growing_layers import growing_layers
from models.settings.growth import layer_count_of_stage
from models.settings.model import schema_of
from models.vector.schema import Schema
from models.vector.seeds import growth_seed

PlanPart = Callable[[Plan], Schema]
"""Return some of the tensors of a plan's model, such as ``models.plan.plan.released_schema``."""


def first_parameters(plan: Plan) -> Tensor:
    """Return a plan's whole model before training, flat, in the order of its schema.

    In a later stage of growth it is the first stage's, grown.
    """
    if plan.growth is None:
        return initial_parameters(plan.model, plan.seed)
    first = plan_at_stage(plan, 1)
    return grow(initial_parameters(first.model, plan.seed), first, plan, whole_model)


def grow(values: Tensor, before: Plan, after: Plan, part: PlanPart) -> Tensor:
    """Return tensors of an earlier stage with those of the layers that came since.

    ``values`` are flat float32 in the layout of ``part(before)``, the result is in that of
    ``part(after)``: ``values`` itself within a stage. Both plans are of one run, and a tensor is in
    ``part`` at every stage or at none.

    Raises:
        ValueError: If ``after`` is of an earlier stage, or the values do not fit.
    """
    check_flat(values, part(before))
    last, first = after.growth_stage or 1, before.growth_stage or 1
    if last < first:
        raise ValueError(f"growth_stage must not fall, got {last} after {first}")
    grown, smaller = values, part(before)
    for stage in range(first + 1, last + 1):
        staged = plan_at_stage(after, stage)
        larger = part(staged)
        fresh = part_of(_with_new_layers(staged), schema_of(staged.model), larger)
        put_part(fresh, larger, smaller, grown)
        grown, smaller = fresh, larger
    return grown


def fresh_model(plan: Plan) -> Tensor:
    """Return a whole model, flat, with the layers that the plan's stage adds as they start.

    Its other tensors mean nothing. The plan must be of a later stage than the first.
    """
    if plan.growth is None or plan.growth_stage == 1:
        raise ValueError("growth_stage must be >= 2 for layers to be new, got 1")
    return _with_new_layers(plan)


def whole_model(plan: Plan) -> Schema:
    """Return every tensor of a plan's model."""
    return schema_of(plan.model)


def _with_new_layers(plan: Plan) -> Tensor:
    growth, stage = plan.growth, plan.growth_stage
    if growth is None or stage is None:
        raise ValueError("growth must be set for layers to be new, it is not")
    drawn = initial_parameters(plan.model, growth_seed(plan.seed, stage))
    if growth.start == "random":
        return drawn
    layers, old_count = growing_layers(plan.model), layer_count_of_stage(growth, stage - 1)
    for name, where in schema_of(plan.model).slices.items():
        layer = layers.layer_of(name)
        if layer is not None and layer >= old_count and layers.writes_to_stream(name):
            drawn[where] = 0
    return drawn
