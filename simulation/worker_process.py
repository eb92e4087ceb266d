"""The process that trains and evaluates for a simulation: one thread, job after job.

Jobs and answers travel in a pipe and hold names and numbers; parameters and updates lie in shared
memory.
"""

import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

from torch import Tensor

from edge_client.compute import prepare_compute
from edge_client.local_round import LocalResult, evaluate_users
from edge_client.optimisers import OptimiserState
from models.metrics import Counts
from models.plan import Plan, decode_plan
from privacy.clipping import UnusableUpdateError
from simulation.examples import Examples, SharedExamples


class Job(NamedTuple):
    """Ask a worker to train one client, or to evaluate users.

    Attributes:
        position: Place among the jobs of this call.
        names: The client, or the users to evaluate.
        round_number: Round, from 1.
        trains: Whether the work is training.
        buffer: Which update buffer training writes to; chosen when the job is sent.
        optimiser_state: What the client's last round left, where the plan keeps it.
        clipping_norm: This round's, where it changes from round to round.
    """

    position: int
    names: tuple[str, ...]
    round_number: int
    trains: bool
    buffer: int = 0
    optimiser_state: OptimiserState | None = None
    clipping_norm: float | None = None


class Answer(NamedTuple):
    """Answer a job.

    Attributes:
        position: As in the job.
        buffer: As in the job.
        example_count: Target tokens of one pass; for training.
        mean_loss: Mean training loss in nats.
        update_norm: L2 norm before clipping and noise.
        optimiser_state: What the client's next round starts from, where the plan keeps it.
        counts: What was counted; for evaluation.
        diverged: Whether training ended in NaN or infinity.
        failure: Why the job could not be done, or None.
    """

    position: int
    buffer: int = 0
    example_count: int = 0
    mean_loss: float = 0.0
    update_norm: float = 0.0
    optimiser_state: OptimiserState | None = None
    counts: Counts = Counts()
    diverged: bool = False
    failure: str | None = None


class ClientTrainer(Protocol):
    """Train client after client, as ``edge_client.local_round.LocalTrainer`` does."""

    def train(
        self,
        parameters: Tensor,
        examples: Examples,
        *,
        round_number: int,
        client_name: str,
        optimiser_state: OptimiserState | None = None,
        into: Tensor | None = None,
        clipping_norm: float | None = None,
    ) -> LocalResult:
        """Return the client's result, with the update in ``into`` where nothing changed it."""
        ...


TrainerFactory = Callable[[Plan], ClientTrainer]


def serve(
    connection: Connection,
    plan: bytes,
    tensors: tuple[Tensor, Tensor],
    examples: SharedExamples,
    trainer: TrainerFactory,
) -> None:
    """Answer jobs until told to stop or the parent is gone."""
    # The parent decides what an interrupt means; a worker ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_compute("cpu", threads=1)
    worker = _Worker(decode_plan(plan), tensors, examples, trainer)
    with suppress(EOFError, OSError):
        while (job := connection.recv()) is not None:
            connection.send(worker.answer(job))


class _Worker:
    """Hold what a worker process keeps between jobs."""

    def __init__(
        self,
        plan: Plan,
        tensors: tuple[Tensor, Tensor],
        examples: SharedExamples,
        trainer: TrainerFactory,
    ) -> None:
        self._plan = plan
        self._parameters, self._updates = tensors
        self._examples = examples
        self._make_trainer = trainer
        self._trainer: ClientTrainer | None = None

    def answer(self, job: Job) -> Answer:
        """Do a job; what went wrong is told to the parent, which knows what it means."""
        try:
            if not job.trains:
                users = [self._examples[name] for name in job.names]
                return Answer(
                    job.position, counts=evaluate_users(self._plan, self._parameters, users)
                )
            return self._train(job, self._updates[job.buffer])
        except UnusableUpdateError:
            return Answer(job.position, job.buffer, diverged=True)
        except (ValueError, RuntimeError) as error:
            return Answer(job.position, failure=str(error))

    def _train(self, job: Job, update: Tensor) -> Answer:
        if self._trainer is None:
            self._trainer = self._make_trainer(self._plan)
        (name,) = job.names
        result = self._trainer.train(
            self._parameters,
            self._examples[name],
            round_number=job.round_number,
            client_name=name,
            optimiser_state=job.optimiser_state,
            # What is sent may be longer: clean norms lie behind the update.
            into=update[: len(self._parameters)],
            clipping_norm=job.clipping_norm,
        )
        if result.update.data_ptr() != update.data_ptr():
            update.copy_(result.update)
        return Answer(
            job.position,
            job.buffer,
            result.example_count,
            result.mean_loss,
            result.update_norm,
            result.optimiser_state,
        )
