"""The objective of local training: the task's loss, or a personalisation method's own."""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.tasks.registry import Task


class LocalObjective(Protocol):
    """The examples that one local epoch reads, and the loss that each step follows downhill."""

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[Any]:
        """Yield one local epoch's batches in drawn order, as large as the network says."""
        ...

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean loss in nats, the number of targets, and the next call's state."""
        ...


class TaskObjective:
    """The task's loss over a client's examples, and nothing else."""

    def __init__(
        self,
        task: Task[Any, Any],
        examples: Any,  # of the task
        training: TrainingSettings,
    ) -> None:
        self._task = task
        self._examples = examples
        self._training = training

    def batches(self, network: Network, generator: torch.Generator) -> Iterator[Any]:
        """Yield what the task yields."""
        return self._task.batches(self._examples, self._training, network, generator)

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return what the task says."""
        return self._task.loss(network, batch, state)
