"""One worker in the process that asks: nothing is started, as a notebook or a debugger wants it.

It works as a process of ``simulation.workers.local`` does, with the same parts and memory of the
same alignment, so a client's result has the same bits.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor

from edge_client.descent.compute import prepare_compute
from models.plan.plan import Plan
from simulation.workers.engine import Generated, Terms, WorkerError
from simulation.workers.jobs import Answer, Job, Setting
from simulation.workers.process import Worker
from simulation.workers.shared_buffers import own_tensors


class OwnProcess:
    """The one worker of a run."""

    def __init__(self, terms: Terms, *, device: str = "cpu") -> None:
        """Prepare this process for training.

        Raises:
            ComputeError: If this machine has no such device.
            ValueError: If more than one worker is asked for.
        """
        if terms.worker_count != 1:
            raise ValueError(f"worker_count must be 1 in one process, got {terms.worker_count}")
        self._terms = terms
        self._device = device
        self.use(terms.plan)

    def use(self, plan: Plan) -> None:
        """Go on with the plan of another stage of growth."""
        terms = self._terms
        prepare_compute(self._device, threads=1, model=plan.model)
        self._tensors = own_tensors(plan, terms.together)
        trainer = terms.trainer_on(self._device)
        setting = Setting(plan.encode(), self._tensors, terms.examples, trainer, self._device)
        self._worker = Worker(plan, setting)

    def run(
        self, parameters: Tensor, groups: Sequence[Sequence[Job]], generated: Generated | None
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """Do groups of jobs, as ``simulation.workers.engine.Workers`` says."""
        self._tensors.parameters.copy_(parameters)
        for group in groups:
            jobs = [job._replace(buffer=buffer) for buffer, job in enumerate(group)]
            if generated is not None:
                for job in jobs:
                    self._tensors.generated[job.buffer].copy_(generated(job))
            answers = {answer.position: answer for answer in self._worker.answers(jobs)}
            for job in jobs:
                yield self._checked(job, answers[job.position])

    def close(self) -> None:
        """Do nothing: the process is the caller's."""

    def terminate(self) -> None:
        """Do nothing: the process is the caller's."""

    def _checked(self, job: Job, answer: Answer) -> tuple[Answer, Tensor | None]:
        if answer.failure is not None:
            raise WorkerError(f"{', '.join(job.names)}: {answer.failure}")
        has_update = job.work == "train" and not answer.diverged
        return answer, self._tensors.updates[answer.buffer] if has_update else None
