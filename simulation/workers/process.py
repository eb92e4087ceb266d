"""The process that trains and evaluates for a simulation: one thread, group of jobs after group.

Clients of one group are trained together; all other jobs come alone. Jobs and answers travel in a
pipe and hold names and numbers; parameters and updates lie in shared memory, and what a client
keeps to itself in a file that only its worker reads and writes.
"""

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from edge_client.child.optimiser_store import read_optimiser_state, write_optimiser_state
from edge_client.descent.compute import prepare_compute
from edge_client.descent.optimiser_growth import grow_optimiser_state
from edge_client.descent.optimisers import OptimiserState
from edge_client.personalisation.grown_state import read_kept_state
from edge_client.personalisation.state import PersonalState, StateLayout, write_state
from edge_client.training.local_round import LocalResult, evaluate_users
from models.networks.role_vectors import put_part
from models.plan.plan import Plan, decode_plan, download_schema, released_schema
from models.tasks.keystrokes import KeystrokeCounts, Sentences
from models.tasks.metrics import Counts
from models.text.vocabulary import Vocabulary
from models.vector.schema import Role
from privacy.clipping.clip import UnusableUpdateError
from simulation.population.examples import Examples, SharedExamples
from simulation.workers.batched_training import BatchedTrainer, ClientWork
from simulation.workers.fine_tuning import FineTuner, OwnScore, TypedText
from simulation.workers.shared_buffers import SharedTensors

Work = Literal["train", "score", "type", "fine-tune", "evaluate"]


class Job(NamedTuple):
    """A job: train one client, measure one client's own model, or evaluate users.

    Attributes:
        position: Place among the jobs of this call.
        work: ``train`` one client, ``score`` one client's own model or let it ``type``,
            ``fine-tune`` the released model for one client, or ``evaluate`` it on users.
        names: The client to train or to let type; the client to score and the name of what it is
            scored on; or the users to evaluate.
        round_number: Round, from 1, that is trained, or that a model to be fine-tuned is of.
        buffer: Which buffer holds what was generated for the client and takes its update; chosen
            when the job is sent.
        clipping_norm: This round's, where it changes from round to round.
        state: File with the client's personal state; None before its first round.
        next_state: File that training writes it to; None where the method keeps none.
        optimiser: File with the state of the client's optimiser; None before its first round.
        next_optimiser: File that training writes it to; None where the plan keeps none.
        typed: What the client typed in words, to count keys; None counts none.
        epochs: After how many epochs of fine-tuning to score, rising.
    """

    position: int
    work: Work
    names: tuple[str, ...]
    round_number: int = 0
    buffer: int = 0
    clipping_norm: float | None = None
    state: Path | None = None
    next_state: Path | None = None
    optimiser: Path | None = None
    next_optimiser: Path | None = None
    typed: TypedText | None = None
    epochs: tuple[int, ...] = ()


class Answer(NamedTuple):
    """The answer to a job.

    Attributes:
        position: As in the job.
        buffer: As in the job.
        example_count: Target tokens of one pass; for training.
        mean_loss: Mean training loss in nats.
        update_norm: L2 norm before clipping and noise.
        upload_bytes: What travels, unsealed.
        counts: What was counted; for scoring and evaluation.
        keys: Keys that were counted; for typing.
        tuned: Scores after each of the epochs asked for; for fine-tuning.
        diverged: Whether training ended in NaN or infinity.
        failure: Why the job could not be done, or None.
    """

    position: int
    buffer: int = 0
    example_count: int = 0
    mean_loss: float = 0.0
    update_norm: float = 0.0
    upload_bytes: int = 0
    counts: Counts = Counts()
    keys: KeystrokeCounts = KeystrokeCounts()
    tuned: tuple[OwnScore, ...] = ()
    diverged: bool = False
    failure: str | None = None


class ClientTrainer(Protocol):
    """A trainer of client after client, as ``edge_client.training.local_round.LocalTrainer``
    does.

    Attributes:
        layout: What a client's personal state holds.
    """

    @property
    def layout(self) -> StateLayout:
        """Return what a client's personal state holds."""
        ...

    def train(
        self,
        parameters: Tensor,
        examples: Examples,
        *,
        round_number: int,
        client_name: str,
        optimiser_state: OptimiserState | None = None,
        personal: PersonalState | None = None,
        into: Tensor | None = None,
        clipping_norm: float | None = None,
    ) -> LocalResult:
        """Return the client's result, with the update in ``into`` where nothing changed it."""
        ...

    def evaluate(
        self,
        parameters: Tensor,
        examples: Examples,
        *,
        client_name: str,
        training_examples: Examples | None = None,
        personal: PersonalState | None = None,
    ) -> Counts:
        """Return what the client's own model makes of the examples."""
        ...

    def type_text(
        self,
        parameters: Tensor,
        sentences: Sentences,
        vocabulary: Vocabulary,
        *,
        client_name: str,
        training_examples: Examples | None = None,
        personal: PersonalState | None = None,
    ) -> KeystrokeCounts:
        """Return the keys that the client's own model would have saved it."""
        ...


TrainerFactory = Callable[[Plan], ClientTrainer]


class Setting(NamedTuple):
    """The settings that a worker process needs once.

    Attributes:
        plan: Encoded plan of the run.
        tensors: Memory shared with the pool.
        examples: Everybody's examples, by name.
        trainer: Makes what trains clients one by one.
        device: Where clients train.
    """

    plan: bytes
    tensors: SharedTensors
    examples: SharedExamples
    trainer: TrainerFactory
    device: str


def serve(connection: Connection, setting: Setting) -> None:
    """Answer groups of jobs until told to stop or the parent is gone."""
    # The parent decides what an interrupt means; a worker ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plan = decode_plan(setting.plan)
    prepare_compute(setting.device, threads=1, model=plan.model)
    worker = _Worker(plan, setting)
    with suppress(EOFError, OSError):
        while (jobs := connection.recv()) is not None:
            connection.send(worker.answers(jobs))


class _Worker:
    """The parts that a worker process keeps between jobs."""

    def __init__(self, plan: Plan, setting: Setting) -> None:
        self._plan = plan
        self._device = setting.device
        self._tensors = setting.tensors
        self._travelling = download_schema(plan)
        self._generated = self._travelling.with_roles(Role.GENERATED)
        self._released = released_schema(plan)
        self._received = torch.empty(self._travelling.element_count)
        self._examples = setting.examples
        self._make_trainer = setting.trainer
        self._trainer: ClientTrainer | None = None
        self._together: BatchedTrainer | None = None
        self._tuner: FineTuner | None = None

    def answers(self, jobs: Sequence[Job]) -> list[Answer]:
        """Do a group of jobs: one of whatever kind, or clients that are trained together."""
        if len(jobs) == 1:
            return [self.answer(jobs[0])]
        try:
            return self._train_together(jobs)
        except (ValueError, RuntimeError, OSError) as error:
            failure = f"trained together with others: {error}"
            return [Answer(job.position, job.buffer, failure=failure) for job in jobs]

    def answer(self, job: Job) -> Answer:
        """Do a job; what went wrong is told to the parent, which knows what it means."""
        doing: dict[Work, Callable[[Job], Answer]] = {
            "train": self._train,
            "score": self._score,
            "type": self._type,
            "fine-tune": self._fine_tune,
            "evaluate": self._evaluate,
        }
        try:
            return doing[job.work](job)
        except UnusableUpdateError:
            return Answer(job.position, job.buffer, diverged=True)
        except (ValueError, RuntimeError, OSError) as error:
            return Answer(job.position, job.buffer, failure=str(error))

    def _train(self, job: Job) -> Answer:
        trainer = self._the_trainer()
        update = self._tensors.updates[job.buffer]
        (name,) = job.names
        received = self._of_client(job.buffer)
        result = trainer.train(
            received,
            self._examples[name],
            round_number=job.round_number,
            client_name=name,
            optimiser_state=self._optimiser_state(job),
            personal=self._state(job, trainer),
            # What is sent may be longer: clean norms lie behind the update.
            into=update[: len(received)],
            clipping_norm=job.clipping_norm,
        )
        return self._trained(job, trainer.layout, result)

    def _train_together(self, jobs: Sequence[Job]) -> list[Answer]:
        """Train one round of several clients at once."""
        if self._together is None:
            self._together = BatchedTrainer(self._plan, self._device)
        answers, usable, clients = [], [], []
        for job in jobs:
            try:
                clients.append(self._client_work(job, self._together))
                usable.append(job)
            except (ValueError, OSError) as error:
                answers.append(Answer(job.position, job.buffer, failure=str(error)))
        first = jobs[0]
        results = self._together.train(
            clients, round_number=first.round_number, clipping_norm=first.clipping_norm
        )
        layout = self._the_trainer().layout
        for job, result in zip(usable, results, strict=True):
            if result is None:
                answers.append(Answer(job.position, job.buffer, diverged=True))
            else:
                answers.append(self._trained(job, layout, result))
        return answers

    def _client_work(self, job: Job, together: BatchedTrainer) -> ClientWork:
        (name,) = job.names
        examples = together.checked(self._examples[name])
        received = self._of_client(job.buffer)
        state = self._state(job, self._the_trainer())
        return ClientWork(
            name,
            # What was generated for the next client goes to the same memory.
            received.clone() if received is self._received else received,
            examples,
            None if state is None else state.personal,
            None if state is None else state.residual,
        )

    def _trained(self, job: Job, layout: StateLayout, result: LocalResult) -> Answer:
        """Put the update where the parent reads it, and keep what the client keeps."""
        update = self._tensors.updates[job.buffer]
        if result.update.data_ptr() != update.data_ptr():
            update.copy_(result.update)
        # The checkpoint that counts on what is kept waits for the disk.
        if job.next_state is not None and result.personal is not None:
            write_state(job.next_state, layout, result.personal, flush=False)
        if job.next_optimiser is not None and result.optimiser_state is not None:
            write_optimiser_state(job.next_optimiser, result.optimiser_state, flush=False)
        return Answer(
            job.position,
            job.buffer,
            result.example_count,
            result.mean_loss,
            result.update_norm,
            update.nbytes if result.payload is None else result.payload.nbytes,
        )

    def _score(self, job: Job) -> Answer:
        trainer = self._the_trainer()
        client, scored = job.names
        counts = trainer.evaluate(
            self._of_client(job.buffer),
            self._examples[scored],
            client_name=client,
            training_examples=self._examples[client],
            personal=self._state(job, trainer),
        )
        return Answer(job.position, job.buffer, counts=counts)

    def _type(self, job: Job) -> Answer:
        trainer = self._the_trainer()
        (client,) = job.names
        if job.typed is None:
            raise ValueError(f"{client} must have typed something, got nothing")
        keys = trainer.type_text(
            self._of_client(job.buffer),
            job.typed.sentences,
            job.typed.vocabulary,
            client_name=client,
            training_examples=self._examples[client],
            personal=self._state(job, trainer),
        )
        return Answer(job.position, job.buffer, keys=keys)

    def _fine_tune(self, job: Job) -> Answer:
        if self._tuner is None:
            self._tuner = FineTuner(self._plan)
        client, scored = job.names
        tuned = self._tuner.scores(
            self._tensors.parameters,
            self._examples[client],
            self._examples[scored],
            client_name=client,
            after_round=job.round_number,
            epochs=job.epochs,
            typed=job.typed,
        )
        return Answer(job.position, tuned=tuple(tuned))

    def _evaluate(self, job: Job) -> Answer:
        users = [self._examples[name] for name in job.names]
        counts = evaluate_users(self._plan, self._tensors.parameters, users, device=self._device)
        return Answer(job.position, counts=counts)

    def _the_trainer(self) -> ClientTrainer:
        if self._trainer is None:
            self._trainer = self._make_trainer(self._plan)
        return self._trainer

    def _of_client(self, buffer: int) -> Tensor:
        """Return what a client receives: what is released, and what was generated for it."""
        if not self._generated.tensors:
            return self._tensors.parameters
        put_part(self._received, self._travelling, self._released, self._tensors.parameters)
        put_part(self._received, self._travelling, self._generated, self._tensors.generated[buffer])
        return self._received

    def _state(self, job: Job, trainer: ClientTrainer) -> PersonalState | None:
        if job.state is None:
            return None
        return read_kept_state(job.state, self._plan, trainer.layout)

    def _optimiser_state(self, job: Job) -> OptimiserState | None:
        if job.optimiser is None:
            return None
        return grow_optimiser_state(read_optimiser_state(job.optimiser), self._plan)
