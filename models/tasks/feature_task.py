"""The protocol of a task whose answers are classes that one last layer reads from features.

Methods that add something beside that layer (a personal head, neighbours, Gaussian processes) are
written against it.
"""

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from models.networks.registry import Network
from models.tasks.metrics import Counts
from models.tasks.registry import Task

ExamplesT_contra = TypeVar("ExamplesT_contra", contravariant=True)
BatchT = TypeVar("BatchT")


@runtime_checkable
class FeatureTask(Task[ExamplesT_contra, BatchT], Protocol[ExamplesT_contra, BatchT]):
    """A task that gives features and classes of a person's examples."""

    def targets(self, examples: ExamplesT_contra) -> Tensor:
        """Return the class of every target, int64, shape ``(targets,)``, in the examples' order."""

    def features(self, network: Network, batch: BatchT) -> tuple[Tensor, Tensor]:
        """Return the head's input before each target, ``(targets, embed)``, and the targets.

        Both lie on the network's device; targets have shape ``(targets,)``.
        """

    def scored_batches(
        self, network: Network, examples: ExamplesT_contra, *, batch_size: int
    ) -> Iterator[BatchT]:
        """Yield batches that hold every scored target once, in the examples' order."""

    def count(self, logits: Tensor, targets: Tensor) -> Counts:
        """Count hits of float32 scores, ``(targets, classes)``."""


def feature_task(task: Task[Any, Any], method: str) -> FeatureTask[Any, Any]:
    """Return the task, or raise ``ValueError`` naming the method if it has no features."""
    if not isinstance(task, FeatureTask):
        raise ValueError(
            f'method "{method}" needs a task of few classes, such as image_classification, got '
            f"{type(task).__name__}"
        )
    return task


def head_of(network: Network) -> nn.Linear:
    """Return the last layer of a network that classifies, or raise ``ValueError``."""
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear):
        raise ValueError(f"the network must have a linear head, {type(network).__name__} has none")
    return head
