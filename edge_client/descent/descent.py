"""The training loop: local epochs of steps downhill, for every method and every task."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from edge_client.descent.compute import gains_from_bfloat16
from edge_client.descent.objective import LocalObjective, TaskObjective
from edge_client.descent.optimisers import Optimiser
from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.tasks.registry import Task


class Descent:
    """Training of one network on one client's examples, in an order drawn anew for each epoch."""

    def __init__(
        self,
        network: Network,
        task: Task[Any, Any],
        examples: Any,  # of the task
        training: TrainingSettings,
        *,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.network = network
        self.task = task
        self.examples = examples
        self.training = training
        self.generator = generator
        self.device = device

    def run(
        self,
        optimiser: Optimiser,
        *,
        epochs: int | None = None,
        objective: LocalObjective | None = None,
        only: Collection[str] | None = None,
        steps_per_batch: int = 1,
        before_step: Callable[[], None] | None = None,
        after_batch: Callable[[], None] | None = None,
    ) -> float:
        """Run some local epochs and return the mean objective over all their targets, in nats.

        It is measured while training; what ``before_step`` adds is not in it.

        Args:
            epochs: How many; all of the plan's by default.
            objective: The loss to minimise; the task's by default.
            only: Names of the parameters that are trained; all by default.
            steps_per_batch: Steps on each batch, each from the state the batch began with.
            before_step: Called when a step's gradients are there; may change them.
            after_batch: Called when a batch's steps are done; may change the parameters.
        """
        self.network.train()
        objective = objective or TaskObjective(self.task, self.examples, self.training)
        # Summed on the device: reading it after each step would wait for the accelerator.
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        target_count = 0
        with self._training_only(only):
            for _ in range(self.training.local_epochs if epochs is None else epochs):
                state: Tensor | None = None
                for batch in objective.batches(self.network, self.generator):
                    before = state
                    for _ in range(steps_per_batch):
                        with self._precision():
                            loss, count, state = objective.loss(self.network, batch, before)
                        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                        if before_step is not None:
                            before_step()
                        optimiser.step()
                        loss_sum += loss.detach() * count
                        target_count += count
                    if after_batch is not None:
                        after_batch()
        return float(loss_sum) / target_count

    @contextmanager
    def _training_only(self, names: Collection[str] | None) -> Iterator[None]:
        """Let gradients reach these parameters alone."""
        if names is None:
            yield
            return
        parameters = dict(self.network.named_parameters())
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in names)
        try:
            yield
        finally:
            for parameter in parameters.values():
                parameter.requires_grad_(True)

    @contextmanager
    def _precision(self) -> Iterator[None]:
        wanted = self.training.precision == "bfloat16"
        enabled = wanted and gains_from_bfloat16(self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled):
            yield
