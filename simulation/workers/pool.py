"""Train a cohort on several cores: processes of one thread each, results in slot order.

The pool lives as long as the simulation, so a round pays neither for starting Python nor for
importing torch. Parameters go out and updates come back through shared memory; pipes carry names
and counts. A client's result depends on the plan, the parameters, its own data and its seed, never
on the process that computed it, and results are handed on in slot order: one worker and eight
give the same bits.

Memory is a few models a worker, whatever the cohort: a worker gets the next client only when one
of the pool's update buffers is free. Small clients can be trained together, a group at a time
(``simulation.workers.batched_training``): groups are neighbours in slot order, so what was said of
worker counts still holds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from torch import Tensor

from edge_client.descent.compute import resolve_device
from edge_client.training.local_round import LocalTrainer
from models.plan.plan import Plan
from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from simulation.population.examples import Examples, SharedExamples
from simulation.workers.fine_tuning import OwnScore, TypedText
from simulation.workers.jobs import Answer, Job, Setting, Trained, TrainerFactory, Work
from simulation.workers.processes import WorkerProcesses
from simulation.workers.shared_buffers import share_tensors
from simulation.workers.state_shelf import StateShelf, checked_optimisers, checked_states
from simulation.workers.together import check_together

Generate = Callable[[str], Tensor | None]
"""Return a client's generated tensors, flat float32, or None where the method generates none."""


def _nothing(client_name: str) -> None:
    """Generate nothing."""


class WorkerPool:
    """Processes that train and evaluate clients."""

    def __init__(
        self,
        plan: Plan,
        examples: Mapping[str, Examples],
        *,
        worker_count: int,
        trainer: TrainerFactory | None = None,
        states: StateShelf | None = None,
        optimisers: StateShelf | None = None,
        together: int = 1,
        device: str = "cpu",
    ) -> None:
        """Start the processes.

        Args:
            plan: Plan of the run; what clients train and users are scored by.
            examples: Examples of every client and evaluation user by name, of the plan's task.
            worker_count: Number of processes, at least 1.
            trainer: Makes what trains clients one by one, importable by name in another process;
                ``LocalTrainer`` on the device if absent.
            states: Where clients' personal states lie; None where the method keeps none.
            optimisers: Where the states of their optimisers lie; None where the plan keeps none.
            together: Clients that a worker trains at once, at least 1.
            device: ``cpu``, or ``cuda`` for all workers.

        Raises:
            ComputeError: If there is no such device.
            TogetherError: If clients of this plan cannot be trained together.
            ValueError: If there are no workers, nobody has examples, something is kept and there
                is no place for it, or ``together`` is below 1.
        """
        if worker_count < 1:
            raise ValueError(f"worker_count must be >= 1, got {worker_count}")
        if together < 1:
            raise ValueError(f"together must be >= 1, got {together}")
        if together > 1:
            check_together(plan)
        resolve_device(device)
        self.worker_count = worker_count
        self._states = checked_states(plan, states)
        self._optimisers = checked_optimisers(plan, optimisers)
        self._together = together
        self._examples = SharedExamples.pack(examples)
        self._make_trainer = trainer or partial(LocalTrainer, device=device)
        self._device = device
        self._start(plan)

    @property
    def keeps_states(self) -> bool:
        """Return whether clients keep anything to themselves from one round to the next."""
        return self._states is not None or self._optimisers is not None

    def use(self, plan: Plan) -> None:
        """Go on with the plan of another stage of growth; nothing is done if it is the same.

        The processes are started anew: what they share with this one has a size of its own in every
        stage, and a stage lasts for many rounds.
        """
        if plan == self._plan:
            return
        self.close()
        self._start(plan)

    def _start(self, plan: Plan) -> None:
        self._plan = plan
        self._tensors = share_tensors(plan, worker_count=self.worker_count, together=self._together)
        self._generates = bool(self._tensors.generated.numel())
        setting = Setting(
            plan.encode(), self._tensors, self._examples, self._make_trainer, self._device
        )
        self._processes = WorkerProcesses(setting, self.worker_count)

    def train(
        self,
        parameters: Tensor,
        cohort: Sequence[tuple[int, str]],
        *,
        round_number: int,
        clipping_norm: float | None = None,
        generate: Generate = _nothing,
        keeps: bool = True,
    ) -> Iterator[Trained]:
        """Train the clients and yield their results in the order given.

        A client starts from its newest states up to this round, those of an earlier attempt at the
        round among them, and its next ones are kept as those of this round. One that diverges keeps
        what it had.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            cohort: Slot and name of each client.
            round_number: Round that the parameters are of, from 1.
            clipping_norm: This round's, where it changes from round to round.
            generate: Makes a client's generated tensors, where the method has some.
            keeps: Whether clients keep what training leaves them with; else they stay as they were.

        Raises:
            WorkerError: If a client's examples are unusable, or a process died.
        """
        self._tensors.parameters.copy_(parameters)
        states, optimisers = self._states, self._optimisers
        jobs = [
            Job(
                index,
                "train",
                (name,),
                round_number,
                clipping_norm=clipping_norm,
                state=states.newest(name, round_number) if states else None,
                next_state=states.place(name, round_number) if states and keeps else None,
                optimiser=optimisers.newest(name, round_number) if optimisers else None,
                next_optimiser=optimisers.place(name, round_number)
                if optimisers and keeps
                else None,
            )
            for index, (_, name) in enumerate(cohort)
        ]
        for answer in self._run(jobs, generate):
            slot, name = cohort[answer.position]
            update = None if answer.diverged else self._tensors.updates[answer.buffer]
            yield Trained(
                slot,
                name,
                update,
                answer.example_count,
                answer.mean_loss,
                answer.update_norm,
                answer.upload_bytes,
            )

    def score_clients(
        self,
        parameters: Tensor,
        clients: Mapping[str, str],
        *,
        round_number: int,
        generate: Generate = _nothing,
    ) -> dict[str, Counts]:
        """Return what each client's own model makes of its own examples, by client.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            clients: Name of the examples that each client is scored on, by client.
            round_number: Round whose personal states are used; 0 before the first.
            generate: Makes a client's generated tensors, where the method has some.

        Raises:
            WorkerError: If a client could not be scored, or a process died.
        """
        self._tensors.parameters.copy_(parameters)
        states = self._states
        jobs = [
            Job(
                index,
                "score",
                names,
                state=states.newest(names[0], round_number) if states else None,
            )
            for index, names in enumerate(clients.items())
        ]
        counts = (answer.counts for answer in self._run(jobs, generate))
        return dict(zip(clients, counts, strict=True))

    def type_texts(
        self,
        parameters: Tensor,
        texts: Mapping[str, TypedText],
        *,
        round_number: int,
        generate: Generate = _nothing,
    ) -> dict[str, KeystrokeCounts]:
        """Return the keys that each client's own model would save it, by client.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            texts: The text of each client.
            round_number: Round whose personal states are used; 0 before the first.
            generate: Makes a client's generated tensors, where the method has some.

        Raises:
            WorkerError: If a client's keys could not be counted, or a process died.
        """
        self._tensors.parameters.copy_(parameters)
        states = self._states
        jobs = [
            Job(
                index,
                "type",
                (client,),
                state=states.newest(client, round_number) if states else None,
                typed=typed,
            )
            for index, (client, typed) in enumerate(texts.items())
        ]
        keys = (answer.keys for answer in self._run(jobs, generate))
        return dict(zip(texts, keys, strict=True))

    def fine_tune(
        self,
        parameters: Tensor,
        clients: Mapping[str, str],
        epochs: Sequence[int],
        *,
        round_number: int,
        texts: Mapping[str, TypedText] | None = None,
    ) -> dict[str, tuple[OwnScore, ...]]:
        """Return each client's scores after it trained the model further by itself, by client.

        Args:
            parameters: The whole model, which everyone shares, flat float32, shape ``(elements,)``.
            clients: Name of the examples that each client is scored on, by client.
            epochs: After how many epochs to score, rising, from 1.
            round_number: Round that the model is of.
            texts: The test text in words, by client, to count keys; None counts none.

        Raises:
            WorkerError: If a client's training diverged, or a process died.
        """
        self._tensors.parameters.copy_(parameters)
        jobs = [
            Job(
                index,
                "fine-tune",
                names,
                round_number,
                typed=None if texts is None else texts.get(names[0]),
                epochs=tuple(epochs),
            )
            for index, names in enumerate(clients.items())
        ]
        tuned = (answer.tuned for answer in self._run(jobs, _nothing))
        return dict(zip(clients, tuned, strict=True))

    def evaluate(self, parameters: Tensor, groups: Sequence[Sequence[str]]) -> list[Counts]:
        """Return what the released model makes of each group of users, in the order given.

        Args:
            parameters: The whole model, which everyone shares, flat float32, shape ``(elements,)``.
            groups: Names of the users that one worker scores together.

        Raises:
            WorkerError: If an evaluation failed or its process died.
        """
        self._tensors.parameters.copy_(parameters)
        jobs = [Job(index, "evaluate", tuple(names)) for index, names in enumerate(groups)]
        return [answer.counts for answer in self._run(jobs, _nothing)]

    def close(self) -> None:
        """Let the processes finish what they do and end them."""
        self._processes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._processes.terminate()
        self.close()

    def _run(self, jobs: Sequence[Job], generate: Generate) -> Iterator[Answer]:
        """Yield the answers in the jobs' order; clients are trained in groups."""
        work: Work | None = jobs[0].work if jobs else None
        size = self._together if work == "train" else 1
        groups = [jobs[first : first + size] for first in range(0, len(jobs), size)]
        needs_buffers = work == "train" or (work in {"score", "type"} and self._generates)
        fill = partial(self._generate, generate) if needs_buffers else None
        return self._processes.run(groups, fill)

    def _generate(self, generate: Generate, job: Job) -> None:
        """Put what is generated for a client into its buffer."""
        if not self._generates:
            return
        generated = generate(job.names[0])
        if generated is None:
            raise ValueError(f"the method generates tensors, got none for {job.names[0]}")
        self._tensors.generated[job.buffer].copy_(generated)
