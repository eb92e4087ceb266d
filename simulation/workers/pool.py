"""Train a cohort on several workers of one thread each, results in slot order.

The pool lives as long as the simulation. It turns what a round needs into jobs, and an engine has
them done (``simulation.workers.engine``). A client's result depends on the plan, the parameters,
its own data and its seed, never on the worker that computed it, so one worker and eight give the
same bits. Small clients can be trained together, a group of neighbours in slot order at a time
(``simulation.workers.batched_training``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from torch import Tensor

from models.plan.plan import Plan, upload_schema
from models.tasks.keystrokes import KeystrokeCounts
from models.tasks.metrics import Counts
from models.vector.schema import Role
from simulation.population.examples import Examples, SharedExamples
from simulation.workers.engine import Engine, Terms
from simulation.workers.fine_tuning import OwnScore, TypedText
from simulation.workers.jobs import Answer, Job, Trained, TrainerFactory, Work
from simulation.workers.local import LocalWorkers
from simulation.workers.state_shelf import StateShelf, checked_optimisers, checked_states
from simulation.workers.together import check_together

Generate = Callable[[str], Tensor | None]
"""Return a client's generated tensors, flat float32, or None where the method generates none."""


def _nothing(client_name: str) -> None:
    """Generate nothing."""


class WorkerPool:
    """Workers that train and evaluate clients."""

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
        engine: Engine = LocalWorkers,
    ) -> None:
        """Start the workers.

        Args:
            examples: Examples of every client and evaluation user by name, of the plan's task.
            worker_count: Number of workers, at least 1.
            trainer: Makes what trains clients one by one, importable by name in another process;
                ``LocalTrainer`` on the engine's device if absent.
            states: Place of clients' personal states; None where the method keeps none.
            optimisers: Place of their optimisers' states; None where the plan keeps none.
            together: Clients that a worker trains at once, at least 1.
            engine: Starts the workers; on this machine if absent.

        Raises:
            ComputeError: If there is no such device.
            EngineError: If a cluster cannot have so many workers, or has too little memory.
            TogetherError: If clients of this plan cannot be trained together.
            ValueError: If there are no workers or examples, a state has no place, or ``together`` <
                1.
        """
        if worker_count < 1:
            raise ValueError(f"worker_count must be >= 1, got {worker_count}")
        if together < 1:
            raise ValueError(f"together must be >= 1, got {together}")
        if together > 1:
            check_together(plan)
        self._states = checked_states(plan, states)
        self._optimisers = checked_optimisers(plan, optimisers)
        self._together = together
        self._plan = plan
        self._workers = engine(
            Terms(
                plan,
                SharedExamples.pack(examples),
                trainer,
                together,
                worker_count,
            )
        )

    @property
    def keeps_states(self) -> bool:
        """Return whether clients keep anything to themselves from one round to the next."""
        return self._states is not None or self._optimisers is not None

    def use(self, plan: Plan) -> None:
        """Go on with the plan of another stage of growth; does nothing if it is the same."""
        if plan == self._plan:
            return
        self._workers.use(plan)
        self._plan = plan

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
        """Train the clients, given by slot and name, and yield their results in the order given.

        A client starts from its newest states up to this round, those of an earlier attempt
        included, and its next ones are kept as this round's. A client that diverges keeps what it
        had.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            round_number: Round that the parameters are of, from 1.
            clipping_norm: This round's, where it changes from round to round.
            generate: Makes a client's generated tensors, where the method has some.
            keeps: Whether clients keep their new states; otherwise the old ones stay.

        Raises:
            WorkerError: If a client's examples are unusable, or a process died.
        """
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
        for answer, update in self._run(parameters, jobs, generate):
            slot, name = cohort[answer.position]
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
        """Return the counts of each client's own model on its own examples, by client.

        Args:
            parameters: The released parameters, flat float32, shape ``(elements,)``.
            clients: Name of the examples that each client is scored on, by client.
            round_number: Round whose personal states are used; 0 before the first.

        Raises:
            WorkerError: If a client could not be scored, or a process died.
        """
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
        counts = (answer.counts for answer, _ in self._run(parameters, jobs, generate))
        return dict(zip(clients, counts, strict=True))

    def type_texts(
        self,
        parameters: Tensor,
        texts: Mapping[str, TypedText],
        *,
        round_number: int,
        generate: Generate = _nothing,
    ) -> dict[str, KeystrokeCounts]:
        """Return the keys that each client's own model would save it on its text, by client.

        Parameters and rounds are as in ``score_clients``.

        Raises:
            WorkerError: If a client's keys could not be counted, or a process died.
        """
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
        keys = (answer.keys for answer, _ in self._run(parameters, jobs, generate))
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
            epochs: Numbers of epochs after which to score, rising, from 1.
            round_number: Round that the model is of.
            texts: The test text in words, by client, to count keys; None counts none.

        Raises:
            WorkerError: If a client's training diverged, or a process died.
        """
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
        tuned = (answer.tuned for answer, _ in self._run(parameters, jobs, _nothing))
        return dict(zip(clients, tuned, strict=True))

    def evaluate(self, parameters: Tensor, groups: Sequence[Sequence[str]]) -> list[Counts]:
        """Return the released model's counts on each group of users, in the order given.

        ``parameters`` is a whole model, flat float32, shape ``(elements,)``; one worker scores a
        group.

        Raises:
            WorkerError: If an evaluation failed or its process died.
        """
        jobs = [Job(index, "evaluate", tuple(names)) for index, names in enumerate(groups)]
        return [answer.counts for answer, _ in self._run(parameters, jobs, _nothing)]

    def close(self) -> None:
        """Let the workers finish what they do and end them."""
        self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._workers.terminate()
        self.close()

    def _run(
        self, parameters: Tensor, jobs: Sequence[Job], generate: Generate
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """Yield the answers in the jobs' order; clients are trained in groups."""
        work: Work | None = jobs[0].work if jobs else None
        size = self._together if work == "train" else 1
        groups = [jobs[first : first + size] for first in range(0, len(jobs), size)]
        asks_method = work in {"train", "score", "type"} and _generates(self._plan)
        generated = partial(_generated, generate) if asks_method else None
        return self._workers.run(parameters, groups, generated)


def _generates(plan: Plan) -> bool:
    return bool(upload_schema(plan).with_roles(Role.GENERATED).element_count)


def _generated(generate: Generate, job: Job) -> Tensor:
    generated = generate(job.names[0])
    if generated is None:
        raise ValueError(f"the method generates tensors, got none for {job.names[0]}")
    return generated
