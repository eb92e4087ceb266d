"""Score one model on many people's held-out examples."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network
from models.plan.plan import Plan, plan_schema
from models.tasks.metrics import Counts
from models.tasks.registry import task_named

EVALUATION_BATCH = 64


def evaluate_users(
    plan: Plan,
    parameters: Tensor,
    users: Sequence[Any],  # of the plan's task
    *,
    device: torch.device | str = "cpu",
    batch_size: int = EVALUATION_BATCH,
) -> Counts:
    """Score flat float32 parameters on many people's held-out examples, each apart from the others.

    The ``batch_size``, texts read side by side, changes the speed alone.

    Raises:
        ValueError: If something does not fit the plan.
    """
    network = build_network(plan.model, device)
    load_parameters(network, plan_schema(plan), parameters)
    return task_named(plan.task).evaluate(network, users, batch_size=batch_size)
