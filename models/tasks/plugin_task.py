"""The protocol of a plugin's task: what any task does, and where its examples come from."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor

from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.plugins.loaded import has_part, part_of, provider_of
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.model import ModelSettings
from models.settings.plugin import ModelPart, PluginModel, plugin_speaks
from models.tasks.metrics import Counts
from models.tasks.rows import Rows


@runtime_checkable
class PluginTask(Protocol):
    """A task in ``sotto.tasks``, an object without state; see ``models.tasks.registry.Task`` too.

    Its other methods are as there, on ``Rows``. A row is a target.
    """

    def read(self, path: Path, settings: Any) -> Rows:  # Any: the plugin's own settings.
        """Read one person's examples on their device, oldest first.

        Args:
            path: What ``sotto-client run --data`` names, somebody's own and maybe damaged.
            settings: The model's, as the plugin's own struct.

        Raises:
            UnusableExamplesError: If there are none; says why, and nothing of what they say.
        """

    def people(self, dataset: str, path: Path | None, settings: Any) -> Mapping[str, Rows]:
        """Read everybody's examples for a simulation, each person's oldest first, by name.

        Args:
            dataset: ``data.dataset`` of the simulation's settings.
            path: What ``--data`` names; None if nothing does.

        Raises:
            ValueError: If there is no such data set, or it cannot be read.
        """

    def figures(self, counts: Counts) -> Mapping[str, float]:
        """Return figures of its own by name, beside perplexity and recall; counts are above 0."""

    def example_count(self, examples: Rows) -> int:
        """Return the targets in one pass over the examples."""

    def check(self, examples: Rows, network: Network) -> None:
        """Check that the network can train on the examples."""

    # Any: batches are the task's own.
    def batches(
        self, examples: Rows, training: TrainingSettings, network: Network, generator: Generator
    ) -> Iterator[Any]:
        """Yield one pass over a person's checked examples."""

    def loss(
        self, network: Network, batch: Any, state: Tensor | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Return the mean loss in nats, the number of targets, and None."""

    def evaluate(self, network: Network, users: Sequence[Rows], *, batch_size: int) -> Counts:
        """Score every target of every user once, in evaluation mode."""


def plugin_task(name: str) -> PluginTask:
    """Return a plugin's task, or raise PluginError if no loaded plugin has one of the name."""
    task = part_of(Part.TASKS, name)
    if isinstance(task, type) or not isinstance(task, PluginTask):
        raise PluginError(
            f"{name} of {Part.TASKS} in {provider_of(Part.TASKS, name)} must be an object that is "
            f"a models.tasks.plugin_task.PluginTask, got {task!r}"
        )
    return task


def figures_of_plugin(task: str, counts: Counts) -> dict[str, float]:
    """Return the figures that a plugin's task makes of counts; none of sotto's own tasks.

    Raises:
        PluginError: If the task is broken.
    """
    if not has_part(Part.TASKS, task):
        return {}
    with plugin_speaks(Part.TASKS, task):
        return {name: float(value) for name, value in plugin_task(task).figures(counts).items()}


def own_model(settings: ModelSettings, task: str) -> ModelPart:
    """Return a model's settings as its plugin's own struct.

    Raises:
        PluginError: If it is one of sotto's families, which no plugin's task is for.
    """
    if not isinstance(settings, PluginModel):
        raise PluginError(
            f'task "{task}" is a plugin\'s and needs a model of its own; set model.family = '
            f'"plugin" and model.name, got family "{settings.family_name}"'
        )
    return settings.own
