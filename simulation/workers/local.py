"""Workers on this machine: processes of one thread each, and memory that they share with the pool.

Memory is a few models a worker, whatever the cohort: a worker gets the next client only when an
update buffer is free.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from torch import Tensor

from edge_client.descent.compute import resolve_device
from models.plan.plan import Plan
from simulation.workers.engine import Generated, Terms
from simulation.workers.jobs import Answer, Job, Setting
from simulation.workers.processes import WorkerProcesses
from simulation.workers.shared_buffers import share_tensors


class LocalWorkers:
    """The processes of one run on this machine."""

    def __init__(self, terms: Terms, *, device: str = "cpu") -> None:
        """Start the processes.

        Raises:
            ComputeError: If this machine has no such device.
        """
        resolve_device(device)
        self._terms = terms
        self._device = device
        self._start(terms.plan)

    def _start(self, plan: Plan) -> None:
        terms = self._terms
        self._tensors = share_tensors(
            plan, worker_count=terms.worker_count, together=terms.together
        )
        setting = Setting(
            plan.encode(),
            self._tensors,
            terms.examples,
            terms.trainer_on(self._device),
            self._device,
        )
        self._processes = WorkerProcesses(setting, terms.worker_count)

    def use(self, plan: Plan) -> None:
        """Start the processes anew, since shared tensors have another size in every stage."""
        self.close()
        self._start(plan)

    def run(
        self, parameters: Tensor, groups: Sequence[Sequence[Job]], generated: Generated | None
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """Have groups of jobs done, as ``simulation.workers.engine.Workers`` says."""
        self._tensors.parameters.copy_(parameters)
        trains = bool(groups) and groups[0][0].work == "train"
        fill = partial(self._fill, generated) if trains or generated is not None else None
        for answer in self._processes.run(groups, fill):
            has_update = trains and not answer.diverged
            yield answer, self._tensors.updates[answer.buffer] if has_update else None

    def close(self) -> None:
        """Let the processes finish what they do and end them."""
        self._processes.close()

    def terminate(self) -> None:
        """End the processes whatever they do."""
        self._processes.terminate()

    def _fill(self, generated: Generated | None, job: Job) -> None:
        if generated is not None:
            self._tensors.generated[job.buffer].copy_(generated(job))
