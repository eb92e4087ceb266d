from typing import Any

import pytest
import torch
from torch import Tensor

from edge_client.local_round import run_training
from edge_client.objective import OBJECTIVES, PlainObjective, build_objective
from models.model_settings import schema_of
from models.parameters import initial_parameters, read_parameters
from models.personalisation import METHODS, all_shared
from models.plan import PersonalisationSettings, Plan
from models.tasks import Task, task_named
from tests.edge_client.training_plan import MODEL, make_plan, make_text

PARAMETERS = initial_parameters(MODEL, seed=3)


class Frozen:
    """Multiply the task's loss by zero: a method that never moves."""

    def __init__(self, task: Task[Any, Any], received: Tensor) -> None:
        self.task = task
        self.received = received

    def loss(self, network: Any, batch: Any, state: Tensor | None) -> Any:
        assert torch.equal(read_parameters(network, schema_of(MODEL)), self.received)
        loss, count, state = self.task.loss(network, batch, state)
        return loss * 0, count, state


def test_a_method_without_an_objective_of_its_own_trains_plainly() -> None:
    objective = build_objective(
        PersonalisationSettings(method="global"), task_named("next_word"), PARAMETERS
    )

    assert isinstance(objective, PlainObjective)


def test_a_registered_method_decides_what_is_minimised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "frozen", all_shared)
    monkeypatch.setitem(OBJECTIVES, "frozen", Frozen)
    plan = make_plan()
    fields = {field: getattr(plan, field) for field in plan.__struct_fields__}
    frozen = Plan(**fields | {"personalisation": PersonalisationSettings(method="frozen")})

    result = run_training(
        frozen, PARAMETERS, make_text(50), round_number=1, client_name="device-0001"
    )

    assert float(result.update.norm()) == 0
    assert result.mean_loss == 0


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'ditto'"):
        build_objective(
            PersonalisationSettings(method="ditto"), task_named("next_word"), PARAMETERS
        )
