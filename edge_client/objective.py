"""What a device minimises: the task's loss, and what a personalisation method adds to it.

A method that needs more than roles (a proximal term, a second head) has a file with its
``LocalObjective`` and one line in ``OBJECTIVES``; the training loop never asks which one it is.
"""

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from models.personalisation_settings import PersonalisationSettings
from models.registry import Network
from models.tasks import Task


class LocalObjective(Protocol):
    """Give the loss that one step of local training follows downhill."""

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean loss in nats, the number of targets, and the state to carry on.

        Args:
            network: Being trained.
            batch: From the task's ``batches``; of the task's own type.
            state: What the call for the batch before returned, or None.
        """
        ...


class PlainObjective:
    """Minimise the task's loss and nothing else."""

    def __init__(self, task: Task[Any, Any], received: Tensor) -> None:
        """Take the task; what was received is of use to methods that stay near it."""
        self._task = task

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return what the task says."""
        return self._task.loss(network, batch, state)


ObjectiveBuilder = Callable[[Task[Any, Any], Tensor], LocalObjective]
"""Build the objective of one round from the task and the received parameters, ``(elements,)``."""

OBJECTIVES: dict[str, ObjectiveBuilder] = {}
"""Methods that add to the task's loss; every other method trains with ``PlainObjective``."""


def build_objective(
    settings: PersonalisationSettings, task: Task[Any, Any], received: Tensor
) -> LocalObjective:
    """Return what a device minimises in one round.

    Args:
        settings: Names the personalisation method.
        task: The plan's task.
        received: Parameters as received, flat float32, shape ``(elements,)``; not to be changed.
    """
    return OBJECTIVES.get(settings.method, PlainObjective)(task, received)
