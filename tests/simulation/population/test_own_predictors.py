"""Neighbours and Gaussian processes in a simulation's worker processes."""

import pytest
import torch
from torch import Tensor

from models.networks.role_vectors import part_of
from models.plan.plan import plan_schema
from models.settings.gaussian_process import GaussianProcessSettings
from models.settings.model import ModelSettings
from models.settings.personalisation import (
    FedTpSettings,
    NeighbourSettings,
    PersonalisationSettings,
    PFedGpSettings,
)
from models.tasks.metrics import Counts
from models.vector.schema import Role
from simulation.population.population import Population, own_name
from simulation.workers.pool import WorkerPool
from tests.edge_client.personalisation.tiny_images import CONVNET, VIT, images, plan_of, started

CLASSES = {"client-1": [0, 1], "client-2": [2, 3, 4], "client-3": [5]}
POPULATION = Population(
    clients={name: images(own, 12, seed=1) for name, own in CLASSES.items()},
    own_test={name: images(own, 12, seed=2) for name, own in CLASSES.items()},
    held_out={},
)
PROCESSES = PFedGpSettings(
    gaussian_process=GaussianProcessSettings(chain_count=3, evaluation_chain_count=3)
)
NEIGHBOURS = FedTpSettings(neighbours=NeighbourSettings(capacity=0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "method"), [(CONVNET, PROCESSES), (VIT, NEIGHBOURS)])
def test_updates_and_scores_are_the_same_bits_whatever_the_worker_count(
    model: ModelSettings, method: PersonalisationSettings
) -> None:
    plan = plan_of(model, method)
    schema = plan_schema(plan)
    shared, generated = (
        part_of(started(plan), schema, schema.with_roles(role))
        for role in (Role.SHARED, Role.GENERATED)
    )

    def generate(client_name: str) -> Tensor | None:
        return generated if len(generated) else None

    def results(worker_count: int) -> tuple[list[Tensor], dict[str, Counts]]:
        with WorkerPool(plan, POPULATION.named_examples(), worker_count=worker_count) as pool:
            cohort = list(enumerate(CLASSES))
            updates = [
                trained.update.clone()
                for trained in pool.train(shared, cohort, round_number=1, generate=generate)
                if trained.update is not None
            ]
            own = {name: own_name("test", name) for name in CLASSES}
            return updates, pool.score_clients(shared, own, round_number=1, generate=generate)

    (updates, counts), (others, other_counts) = results(1), results(3)

    assert len(updates) == len(others) == 3
    assert all(torch.equal(one, other) for one, other in zip(updates, others, strict=True))
    assert bool(updates[1].any())
    assert counts == other_counts
    assert [own.token_count for own in counts.values()] == [12, 12, 12]
    # A client with one class knows it.
    assert counts["client-3"].top1_hits == 12
