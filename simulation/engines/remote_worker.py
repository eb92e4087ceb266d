"""A worker on a node of the cluster: it lives as long as the run, and does errand after errand.

It trains as a process of the local pool does, with the same parts, one thread and memory of the
same alignment, so a client's result has the same bits. What a client keeps to itself lies in a
folder of the node while the errand lasts.
"""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.descent.compute import prepare_compute
from simulation.engines.errands import Incoming, Outgoing, Report, incoming, unpacked
from simulation.engines.scratch import node_scratch
from simulation.population.examples import ExampleArrays, SharedExamples
from simulation.workers.jobs import Answer, Job, Setting, TrainerFactory
from simulation.workers.process import Worker, plan_of_run
from simulation.workers.shared_buffers import own_tensors

Floats = NDArray[np.float32]


class RemoteWorker:
    """A worker of one thread, which is told a plan before its first errand."""

    def __init__(self, examples: ExampleArrays, trainer: TrainerFactory, device: str) -> None:
        """Hold everybody's examples, which the workers of a node share."""
        self._examples = SharedExamples.of_arrays(examples)
        self._trainer = trainer
        self._device = device

    def use(self, plan_bytes: bytes, buffers: int) -> None:
        """Work by a plan from now on, with memory for so many jobs an errand."""
        plan = plan_of_run(plan_bytes)
        prepare_compute(self._device, threads=1, model=plan.model)
        self._tensors = own_tensors(plan, buffers)
        setting = Setting(plan_bytes, self._tensors, self._examples, self._trainer, self._device)
        self._worker = Worker(plan, setting)
        self._received_in = 0

    def run(
        self, call: int, parameters: Floats, errand: Sequence[Sequence[Outgoing]]
    ) -> tuple[Report, list[Incoming]]:
        """Do groups of jobs, and return the answers and what is as large as a model.

        Args:
            call: Number of the call that ``parameters`` are of, from 1: they are copied once.
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            errand: Groups of jobs that are done together, one after the other.
        """
        started = time.perf_counter()
        if call != self._received_in:
            # To memory that is aligned as it is locally.
            np.copyto(self._tensors.parameters.numpy(), parameters)
            self._received_in = call
        parcels = [parcel for group in errand for parcel in group]
        with node_scratch() as folder:
            jobs = unpacked(parcels, folder)
            for job, parcel in zip(jobs, parcels, strict=True):
                if parcel.generated is not None:
                    np.copyto(self._tensors.generated[job.buffer].numpy(), parcel.generated)
            left = iter(jobs)
            by_position = {
                answer.position: answer
                for group in errand
                for answer in self._worker.answers([next(left) for _ in group])
            }
            done = [(job, by_position[job.position]) for job in jobs]
            left_behind = [self._left_behind(job, answer) for job, answer in done]
        answers = [_named(*pair, parcel) for pair, parcel in zip(done, parcels, strict=True)]
        return Report(answers, time.perf_counter() - started), left_behind

    def _left_behind(self, job: Job, answer: Answer) -> Incoming:
        if answer.failure is not None:
            return Incoming()
        has_update = job.work == "train" and not answer.diverged
        return incoming(job, self._tensors.updates[job.buffer].numpy() if has_update else None)


def _named(job: Job, answer: Answer, parcel: Outgoing) -> Answer:
    """Let a failure name the run's file, not this node's copy."""
    failure = answer.failure
    if failure is None:
        return answer
    ours, theirs = parcel.job, job
    for copy, path in ((theirs.state, ours.state), (theirs.optimiser, ours.optimiser)):
        failure = failure if copy is None else failure.replace(str(copy), str(path))
    return answer._replace(failure=failure)
