"""The protocol of a training task, and the registry that a plan's ``task`` is looked up in.

A task defines how one person's examples are batched, what is minimised, and what is counted. A new
task is one file and one line here; local training and evaluation never ask which one it is.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.plugins.loaded import has_part
from models.plugins.parts import Part
from models.tasks.image_classification import ImageClassification
from models.tasks.metrics import Counts
from models.tasks.next_character import NextCharacter
from models.tasks.next_word import NextWord
from models.tasks.plugin_task import plugin_task
from models.tasks.sequence import Sequences
from models.tasks.speech import Speech
from models.tasks.vocoding import Vocoding

ExamplesT_contra = TypeVar("ExamplesT_contra", contravariant=True)
BatchT = TypeVar("BatchT")


class Task(Protocol[ExamplesT_contra, BatchT]):
    """A task: one person's examples as batches, losses and counts."""

    def example_count(self, examples: ExamplesT_contra) -> int:
        """Return the targets in one pass over the examples, a client's weight."""

    def check(self, examples: ExamplesT_contra, network: Network) -> None:
        """Check that the network can train on the examples.

        Raises:
            UnusableExamplesError: If it cannot; says why and what to do.
            WrongFamilyError: If the network is not for this task.
        """

    def batches(
        self,
        examples: ExamplesT_contra,
        training: TrainingSettings,
        network: Network,
        generator: torch.Generator,
    ) -> Iterator[BatchT]:
        """Yield one pass over a person's checked examples, every target once, in drawn order.

        The network's size bounds how much one batch may hold.
        """

    def loss(
        self, network: Network, batch: BatchT, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean loss in nats, shape ``()``, the number of targets, and the state.

        ``state`` is that of the batch before, detached, or None; the network is in training mode.
        """

    def evaluate(
        self, network: Network, users: Sequence[ExamplesT_contra], *, batch_size: int
    ) -> Counts:
        """Score every target of every user once; ``batch_size`` changes only the speed.

        Each user's examples are one person's, never mixed. The network is left in evaluation mode.
        Errors are those of ``check``.
        """


# Any: tasks have examples of different types, and each is given its own kind only.
TASKS: dict[str, Task[Any, Any]] = {
    "next_word": NextWord(),
    "next_character": NextCharacter(),
    "sequence": Sequences(),
    "image_classification": ImageClassification(),
    "speech": Speech(),
    "vocoder": Vocoding(),
}


def task_named(name: str) -> Task[Any, Any]:
    """Return the task that a plan names, or raise ``ValueError``.

    Raises:
        PluginError: If it is a plugin's and is broken.
    """
    if name in TASKS:
        return TASKS[name]
    if has_part(Part.TASKS, name):
        return plugin_task(name)
    raise ValueError(
        f"task must be one of {sorted(TASKS)}, got {name!r}; a task of a plugin needs it in plugins"
    )
