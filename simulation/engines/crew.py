"""The workers of a run on the nodes of a cluster, and what becomes of one that is lost.

A worker is an actor: it holds the plan, its networks and everybody's examples, and does one errand
after the other. If it is lost, another is started wherever the cluster has a free processor, and
until then the others do its work.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import ray
from ray.exceptions import RayActorError, RayError

from models.plan.plan import Plan
from simulation.engines.cluster import Cluster, EngineError
from simulation.engines.errands import Incoming, Outgoing
from simulation.engines.remote_worker import RemoteWorker
from simulation.engines.scratch import clear_nodes
from simulation.figures.progress import tell
from simulation.workers.engine import Terms, WorkerError
from simulation.workers.jobs import Answer, Job

_DEPTH = 2  # Errands of a worker: one being done, and one waiting at its door.
PATIENCE_S = 60.0
_GLANCE_S = 0.2
_MOST_STARTS = 3

Reference = Any
"""A reference to an object of the cluster; Ray's own type differs between its clients."""


@dataclass(eq=False)
class Errand:
    """Groups of jobs that travel together.

    Attributes:
        hand: The worker that has it or had it last.
        report: Its answers on the way, as ``freight`` is what is as large as a model.
        fetching: The freight on its way from another node.
        answers: The answers, once they are here.
        seconds: The seconds that its worker took.
        losses: Workers that were lost while they did it.
    """

    groups: Sequence[Sequence[Job]]
    hand: "Hand | None" = None
    report: Reference = None
    freight: Reference = None
    fetching: Any = None  # Ray's future.
    answers: list[Answer] | None = None
    seconds: float = 0.0
    losses: int = 0

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs in order."""
        return [job for group in self.groups for job in group]

    def fetched(self) -> Sequence[Incoming] | None:
        """Return the freight, or None if it is not here after a moment.

        Raises:
            ObjectLostError: If the cluster has it no more.
        """
        if self.fetching is None:
            if ray.wait([self.freight], timeout=0)[0]:
                return cast(Sequence[Incoming], ray.get(self.freight))
            # In the background: a wait that is given up would begin anew.
            self.fetching = self.freight.future()
        try:
            return cast(Sequence[Incoming], self.fetching.result(_GLANCE_S))
        except TimeoutError:
            return None

    def forget(self) -> None:
        """Let go of what came of it, so that the cluster can."""
        self.hand = self.report = self.freight = self.fetching = self.answers = None


@dataclass(eq=False)
class Hand:
    """A worker of the crew: ``ready`` until it is, then None; ``errands`` it has, oldest first."""

    actor: Any  # Ray makes the methods as it goes.
    ready: Reference
    errands: deque[Errand] = field(default_factory=deque)


class Crew:
    """The workers of a run, as many as it was given."""

    def __init__(self, terms: Terms, cluster: Cluster, device: str, *, buffers: int) -> None:
        """Start the workers; they are ready when the cluster has processors for them.

        Raises:
            EngineError: If the cluster is too small, or has no GPU and one is asked for.
        """
        if terms.worker_count > cluster.processor_count:
            raise EngineError(
                f"the cluster has {cluster.processor_count} processors, and {terms.worker_count} "
                "workers need one each: use fewer workers"
            )
        self._actors = ray.remote(RemoteWorker).options(
            num_cpus=1,
            num_gpus=_gpu_share(terms, cluster) if device == "cuda" else 0,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        self._begun_with = (
            ray.put(terms.examples.arrays()),
            terms.trainer_on(device),
            device,
        )
        self._buffers = buffers
        self._plan = terms.plan
        self._failed_starts = 0
        self._has_lost = False
        self._hands = [self._new_hand() for _ in range(terms.worker_count)]

    def use(self, plan: Plan) -> None:
        """Let everybody go on with another plan; nobody has an errand."""
        self._plan = plan
        for hand in self._hands:
            self._tell_plan(hand)

    def free_hand(self) -> Hand | None:
        """Return the least busy worker that can take another errand; None if all are busy."""
        able = [one for one in self._hands if one.ready is None and len(one.errands) < _DEPTH]
        return min(able, key=lambda one: len(one.errands), default=None)

    def send(
        self,
        hand: Hand,
        errand: Errand,
        *,
        call: int,
        parameters: Reference,
        parcels: Sequence[Sequence[Outgoing]],
    ) -> None:
        """Give a worker an errand."""
        errand.hand = hand
        errand.report, errand.freight = hand.actor.run.options(num_returns=2).remote(
            call, parameters, parcels
        )
        hand.errands.append(errand)

    def wait(self, *, patience_s: float) -> Hand | None:
        """Wait until something happened; return a worker that was lost with what it had.

        Raises:
            WorkerError: If a worker cannot be started, or a job broke it.
        """
        expected = {
            one.ready or one.errands[0].report: one for one in self._hands if _is_awaited(one)
        }
        arrived, _ = (
            ray.wait(list(expected), num_returns=1, timeout=patience_s) if expected else ((), ())
        )
        if patience_s and not arrived and not any(one.ready is None for one in self._hands):
            tell(["no node of the cluster has a free processor: the run waits for one"])
        for reference in arrived:
            hand = expected[reference]
            try:
                self._receive(hand, reference)
            except RayActorError as error:
                self._replace(hand, error)
                return hand
            except RayError as error:
                raise WorkerError(f"{_names(hand)}: {_last_line(error)}") from error
        return None

    def settle(self) -> None:
        """Wait until nobody does anything, whatever comes of it."""
        pending = [errand.report for hand in self._hands for errand in hand.errands]
        if pending:
            ray.wait(pending, num_returns=len(pending), fetch_local=False)
        for hand in self._hands:
            hand.errands.clear()

    def close(self) -> None:
        """End all workers, and remove what those leave on nodes that were killed at work."""
        was_at_work = any(hand.errands for hand in self._hands)
        for hand in self._hands:
            ray.kill(hand.actor)
        self._hands = []
        if was_at_work or self._has_lost:
            clear_nodes()
            self._has_lost = False

    def _new_hand(self) -> Hand:
        hand = Hand(self._actors.remote(*self._begun_with), None)
        self._tell_plan(hand)
        return hand

    def _tell_plan(self, hand: Hand) -> None:
        hand.ready = hand.actor.use.remote(self._plan.encode(), self._buffers)

    def _receive(self, hand: Hand, reference: Reference) -> None:
        result: Any = ray.get(reference)  # A Report, or None of a plan.
        if result is None:
            hand.ready, self._failed_starts = None, 0
        else:
            errand = hand.errands.popleft()
            errand.answers, errand.seconds = result

    def _replace(self, hand: Hand, error: RayActorError) -> None:
        """Start another worker in the place of one that is lost."""
        if hand.ready is not None:
            self._failed_starts += 1
        if error.actor_init_failed or self._failed_starts > _MOST_STARTS * len(self._hands):
            raise WorkerError(f"a worker could not be started: {_last_line(error)}") from error
        self._has_lost = True
        tell([f"a worker was lost, and another is started in its place: {_last_line(error)}"])
        # It may only be out of reach: it must not go on with what others do now.
        ray.kill(hand.actor)
        self._hands[self._hands.index(hand)] = self._new_hand()


def _is_awaited(hand: Hand) -> bool:
    return hand.ready is not None or bool(hand.errands)


def _gpu_share(terms: Terms, cluster: Cluster) -> float:
    """Return a worker's part of a GPU, so that all workers find a place."""
    if not cluster.gpu_count:
        raise EngineError("--device cuda: no node of the cluster has a GPU")
    return 1 / math.ceil(terms.worker_count / cluster.gpu_count)


def _names(hand: Hand) -> str:
    if not hand.errands:
        return "a worker"
    return ", ".join(name for job in hand.errands[0].jobs for name in job.names)


def _last_line(error: Exception) -> str:
    """Return the line that says what happened: Ray puts the stack of the node before it."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
