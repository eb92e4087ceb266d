"""The second engine of a pool: actors of a Ray cluster.

What is large goes through the cluster's object store: everybody's examples to each node once a run,
the parameters once a call. Updates wait there until their turn comes, so the run itself holds one,
whatever the cohort. How many are under way at once is bounded.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import ObjectLostError
from torch import Tensor

from models.plan.plan import Plan, released_schema
from models.vector.schema import BYTES_PER_ELEMENT
from simulation.engines.cluster import Cluster, EngineError, live_nodes
from simulation.engines.crew import PATIENCE_S, Crew, Errand, Hand, Reference
from simulation.engines.errands import Incoming, keep, outgoing
from simulation.workers.engine import Generated, Terms, WorkerError
from simulation.workers.jobs import Answer, Job
from simulation.workers.shared_buffers import GROUPS_PER_WORKER, group_count, sent_bytes

_MOST_LOSSES = 3
_MOST_GROUPS = 8  # Of an errand; more would gain nothing.
_SHORT_ERRAND_S = 0.02


class RayWorkers:
    """The workers of one run on a cluster that this process is joined to."""

    def __init__(self, terms: Terms, *, cluster: Cluster, device: str = "cpu") -> None:
        """Start the workers.

        Raises:
            EngineError: If the cluster cannot have so many workers, has no GPU and one is asked
                for, or a node's object store is too small.
        """
        _check_memory(terms)
        self._worker_count, self._together = terms.worker_count, terms.together
        self._crew = Crew(terms, cluster, device, buffers=_MOST_GROUPS * terms.together)
        self._calls = 0
        self._begin(terms.plan)

    def _begin(self, plan: Plan) -> None:
        self._group_bytes = sent_bytes(plan) * self._together
        self._update = torch.empty(0)
        self._group_s: float | None = None

    def use(self, plan: Plan) -> None:
        """Go on with the plan of another stage of growth."""
        self._crew.use(plan)
        self._begin(plan)

    def run(
        self, parameters: Tensor, groups: Sequence[Sequence[Job]], generated: Generated | None
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """Have groups of jobs done, as ``simulation.workers.engine.Workers`` says."""
        self._calls += 1
        size = self._errand_size(groups)
        call = _Call(
            self._crew,
            [Errand(groups[first : first + size]) for first in range(0, len(groups), size)],
            number=self._calls,
            parameters=ray.put(parameters.numpy()),
            generated=generated,
            most_open=group_count(self._worker_count, size * self._group_bytes),
        )
        try:
            for job, answer, left in call.results():
                if answer.failure is not None:
                    raise WorkerError(f"{', '.join(job.names)}: {answer.failure}")
                keep(job, left)
                yield answer, None if left.update is None else self._own(left.update)
        except (WorkerError, GeneratorExit):
            # The workers stay usable. Not for an interrupt, whose user waits for no client.
            self._crew.settle()
            raise
        if groups and groups[0][0].work == "train":
            self._group_s = call.busy_s / len(groups)

    def close(self) -> None:
        """End the workers."""
        self._crew.close()

    def terminate(self) -> None:
        """End the workers, who keep nothing that could be torn."""
        self._crew.close()

    def _errand_size(self, groups: Sequence[Sequence[Job]]) -> int:
        """Return the groups of an errand: several where each is short, enough for everybody."""
        if not groups or groups[0][0].work != "train" or self._group_s is None:
            return 1
        short = int(_SHORT_ERRAND_S / max(self._group_s, 1e-6))
        fair = len(groups) // (4 * self._worker_count)
        return max(1, min(short, fair, _MOST_GROUPS))

    def _own(self, update: NDArray[np.float32]) -> Tensor:
        """Return a copy that may be written to, in memory that is used again."""
        if len(self._update) != len(update):
            self._update = torch.empty(len(update))
        np.copyto(self._update.numpy(), update)
        return self._update


def _check_memory(terms: Terms) -> None:
    """Check that each node can hold the examples, the parameters and what its workers send."""
    plan = terms.plan
    released = released_schema(plan).element_count * BYTES_PER_ELEMENT
    update = sent_bytes(plan) * terms.together * GROUPS_PER_WORKER
    for node in live_nodes():
        there = node["Resources"]
        worker_count = min(terms.worker_count, int(there["CPU"]))
        wanted = terms.examples.arrays().nbytes + released + worker_count * update
        held = int(there.get("object_store_memory", 0))
        if held < wanted:
            raise EngineError(
                f"node {node['NodeManagerHostname']}: its object store holds {held >> 20} MiB, and "
                f"this run wants {(wanted >> 20) + 1}: start Ray there with "
                f"--object-store-memory {wanted}"
            )


class _Call:
    """The errands of one call: waiting, under way, or done and waiting for their turn."""

    def __init__(
        self,
        crew: Crew,
        errands: Sequence[Errand],
        *,
        number: int,
        parameters: Reference,
        generated: Generated | None,
        most_open: int,
    ) -> None:
        self.busy_s = 0.0
        self._crew = crew
        self._errands = errands
        self._waiting = deque(errands)
        self._open: list[Errand] = []
        self._number = number
        self._parameters = parameters
        self._generated = generated
        self._most_open = most_open

    def results(self) -> Iterator[tuple[Job, Answer, Incoming]]:
        """Yield each job, its answer and what it leaves, in order."""
        for errand in self._errands:
            answers, freight = self._done(errand)
            self.busy_s += errand.seconds
            yield from zip(errand.jobs, answers, freight, strict=True)
            del freight
            self._open.remove(errand)
            errand.forget()

    def _done(self, errand: Errand) -> tuple[Sequence[Answer], Sequence[Incoming]]:
        """Return an errand's answers and what it leaves, however often it has to be done."""
        while True:
            self._send()
            answers = errand.answers
            if answers is not None:
                try:
                    freight = errand.fetched()
                except ObjectLostError:
                    self._redo([errand])
                    continue
                if freight is not None:
                    return answers, freight
            # While freight is on its way, only look whether its worker was lost.
            lost = self._crew.wait(patience_s=PATIENCE_S if answers is None else 0)
            if lost is not None:
                self._take_back(lost)

    def _send(self) -> None:
        """Send errands as long as workers are free, and not too many results wait."""
        while self._waiting and len(self._open) < self._most_open:
            hand = self._crew.free_hand()
            if hand is None:
                return
            errand = self._waiting.popleft()
            parcels = [[outgoing(job, self._generated) for job in group] for group in errand.groups]
            self._crew.send(
                hand, errand, call=self._number, parameters=self._parameters, parcels=parcels
            )
            self._open.append(errand)

    def _take_back(self, lost: Hand) -> None:
        """Have done again what a lost worker had, and what it had done and nobody fetched."""
        if lost.errands:
            doing = lost.errands[0]
            doing.losses += 1
            if doing.losses >= _MOST_LOSSES:
                names = ", ".join(chain.from_iterable(job.names for job in doing.jobs))
                raise WorkerError(
                    f"{names}: {doing.losses} workers ended while they had it; if memory ran out, "
                    "use fewer workers"
                )
        self._redo([errand for errand in self._open if errand.hand is lost])

    def _redo(self, errands: Sequence[Errand]) -> None:
        for errand in reversed(errands):
            self._open.remove(errand)
            errand.forget()
            self._waiting.appendleft(errand)
