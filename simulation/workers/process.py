"""The process that trains and evaluates for a simulation: one thread, group of jobs after group.

Only clients of one group are trained together. Pipes carry jobs and answers, shared memory
parameters and updates, and a file, used by one worker only, what a client keeps to itself.
"""

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from edge_client.child.optimiser_store import read_optimiser_state, write_optimiser_state
from edge_client.descent.compute import prepare_compute
from edge_client.descent.optimiser_growth import grow_optimiser_state
from edge_client.descent.optimisers import OptimiserState
from edge_client.personalisation.grown_state import read_kept_state
from edge_client.personalisation.state import PersonalState, StateLayout, write_state
from edge_client.training.local_result import LocalResult
from edge_client.training.users_scoring import evaluate_users
from models.networks.role_vectors import put_part
from models.plan.onlookers import hides_from_coordinator
from models.plan.plan import Plan, decode_plan, download_schema, released_schema
from models.plan.plugins import plugins_in
from models.plugins.loaded import load_plugins
from models.vector.schema import Role
from privacy.clipping.clip import UnusableUpdateError
from simulation.workers.batched_training import BatchedTrainer, ClientWork
from simulation.workers.fine_tuning import FineTuner
from simulation.workers.jobs import Answer, ClientTrainer, Job, Setting, Work


def serve(connection: Connection, setting: Setting) -> None:
    """Answer groups of jobs until told to stop or the parent is gone."""
    # The parent decides what an interrupt means; a worker ends with its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plan = plan_of_run(setting.plan)
    prepare_compute(setting.device, threads=1, model=plan.model)
    worker = Worker(plan, setting)
    with suppress(EOFError, OSError):
        while (jobs := connection.recv()) is not None:
            connection.send(worker.answers(jobs))


def plan_of_run(encoded: bytes) -> Plan:
    """Decode the plan of the run that this process belongs to, with the plugins that it names.

    The run's own file named them. A device never does this: its floor does.

    Raises:
        PluginError: If one cannot be loaded here.
    """
    load_plugins([str(name) for name in plugins_in(encoded)])
    return decode_plan(encoded)


class Worker:
    """A worker of one thread: what it was given once, and the networks that it builds on demand."""

    def __init__(self, plan: Plan, setting: Setting) -> None:
        """Work for a run by the setting's ``plan``, which is decoded."""
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
        """Do a job; failures go to the parent, which knows what they mean."""
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
            if result is None and hides_from_coordinator(self._plan):
                # Alone, as on a device: there is an update whatever training ended in.
                answers.append(self.answer(job))
            elif result is None:
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
            # A masked vector is whole numbers, and keeps its bits.
            update.view(result.update.dtype).copy_(result.update)
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
