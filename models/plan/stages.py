"""Turn a run's plan into that of one of its stages of growth. No torch.

A plan carries the model as its round trains it, so its readers (a device, an export, a release)
need to know nothing of growth. Both ends derive the plans of other stages from it.
"""

from collections.abc import Iterator

import msgspec

from models.plan.plan import Plan, plan_schema
from models.settings.growing_layers import model_at_stage
from models.settings.growth import GrowthSettings, growth_stage, layer_count_of_stage


def plan_at_stage(plan: Plan, stage: int) -> Plan:
    """Return a growing plan with the model and the schema of another stage in [1, c]."""
    if plan.growth is None:
        raise ValueError(f"growth must be set for a plan of stage {stage}, it is not")
    model = model_at_stage(plan.model, plan.growth, stage)
    if model == plan.model:
        return plan
    staged = msgspec.structs.replace(plan, model=model, growth_stage=stage)
    return msgspec.structs.replace(staged, schema_sha256=plan_schema(staged).sha256.hex())


def plan_of_round(plan: Plan, round_number: int) -> Plan:
    """Return the plan of a round of the run, from 1; the plan itself if nothing grows."""
    if plan.growth is None:
        return plan
    return plan_at_stage(plan, growth_stage(plan.growth, round_number))


def next_stage(plan: Plan, round_number: int) -> Plan | None:
    """Return the plan of the next stage if the round to come is of a later one; else None.

    A round of an earlier stage is a ``ValueError``: the schedule was changed.
    """
    if plan.growth is None or plan.growth_stage is None:
        return None
    wanted = growth_stage(plan.growth, round_number)
    if wanted < plan.growth_stage:
        raise ValueError(
            f"growth_stage must not fall, got {wanted} for round {round_number} after "
            f"{plan.growth_stage}"
        )
    return None if wanted == plan.growth_stage else plan_at_stage(plan, plan.growth_stage + 1)


def earlier_stages(plan: Plan) -> Iterator[Plan]:
    """Yield the plans of the stages before a plan's own, the newest first; none without growth."""
    for stage in range((plan.growth_stage or 1) - 1, 0, -1):
        yield plan_at_stage(plan, stage)


def stage_figures(plan: Plan) -> dict[str, int]:
    """Return a plan's stage and the layers of each stack, by name; none without growth."""
    if plan.growth is None or plan.growth_stage is None:
        return {}
    count = layer_count_of_stage(plan.growth, plan.growth_stage)
    return {"growth_stage": plan.growth_stage, "layer_count": count}


def describe_stage(growth: GrowthSettings, stage: int) -> str:
    """Return a stage in words, such as ``stage 2 of 3: 4 of 6 layers``."""
    layers = layer_count_of_stage(growth, stage)
    return f"stage {stage} of {growth.stage_count}: {layers} of {growth.target_layer_count} layers"
