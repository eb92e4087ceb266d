"""What a pool asks of whatever does its jobs: this machine's processes, or actors of a cluster.

An engine decides where a job is done and how its tensors travel. What comes back is in the order of
the jobs, so the sum over a cohort has the same bits on every engine.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from torch import Tensor

from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan
from simulation.population.examples import SharedExamples
from simulation.workers.jobs import Answer, Job, TrainerFactory

Generated = Callable[[Job], Tensor]
"""Return the tensors that the method generates for a job's client, flat float32."""


class WorkerError(RuntimeError):
    """Raised when a client's work failed or its process died; the text says which and why."""


class Terms(NamedTuple):
    """What the workers of one run work with.

    Attributes:
        plan: The plan that they begin with.
        examples: Everybody's examples.
        trainer: Makes what trains clients one by one; None for ``LocalTrainer`` on the device.
        together: Clients that a worker trains at once.
        worker_count: Number of workers, at least 1.
    """

    plan: Plan
    examples: SharedExamples
    trainer: TrainerFactory | None
    together: int
    worker_count: int

    def trainer_on(self, device: str) -> TrainerFactory:
        """Return what makes trainers, for ``cpu`` or ``cuda``."""
        return self.trainer or partial(LocalTrainer, device=device, seeded=True)


class Workers(Protocol):
    """Workers of one thread each."""

    def use(self, plan: Plan) -> None:
        """Go on with the plan of another stage of growth."""
        ...

    def run(
        self, parameters: Tensor, groups: Sequence[Sequence[Job]], generated: Generated | None
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """Have groups of jobs done, and yield answers and updates in the jobs' order.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            groups: Jobs that one worker does together; positions count from 0 over all of them.
            generated: Makes a client's generated tensors; None where the jobs need none.

        Returns:
            Each job's answer, and the update of one that trained, valid until the next is asked
            for; None of one that diverged, or that is no training.

        Raises:
            WorkerError: If a job failed, or could not be done.
        """
        ...

    def close(self) -> None:
        """Let the workers finish what they do and end them."""
        ...

    def terminate(self) -> None:
        """End the workers whatever they do."""
        ...


class Engine(Protocol):
    """A way to start the workers of a run, on ``cpu`` or ``cuda``."""

    def __call__(self, terms: Terms, *, device: str = "cpu") -> Workers:
        """Start them; ComputeError or EngineError if there is no such device."""
        ...
