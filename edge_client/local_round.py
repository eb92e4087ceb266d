"""Train one round on one person's examples, or score a model on them.

Simulation and device call the same functions: parameters in, client update or counts out. Nothing
here touches a socket or a file. In float32 with one thread an operation, the same plan,
parameters, examples, round and client name give the same bits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from edge_client.compute import gains_from_bfloat16
from edge_client.example_training import ExampleTraining, SecretDraws
from edge_client.objective import LocalObjective, build_objective
from edge_client.optimisers import Optimiser, OptimiserState
from models.language_model import use_generator
from models.metrics import Counts
from models.model_settings import schema_of
from models.parameters import check_flat, lay_parameters, load_parameters, read_update
from models.personalisation import travelling_schema
from models.plan import Plan
from models.registry import build_network, word_network
from models.seeds import client_seed
from models.tasks import task_named
from privacy.layer_clipping import ClippedUpdate, clip_update
from privacy.noise import noise_mode
from privacy.secure_noise import NoiseKeys, SystemKeys
from privacy.settings import PrivacySettings

EVALUATION_BATCH = 64


@dataclass(frozen=True)
class LocalResult:
    """Hold what one client's round comes to.

    Attributes:
        update: What the client sends: trained minus received parameters, clipped, with the
            mode's client half applied; flat float32 in the layout of ``models.plan.upload_schema``.
        update_norm: L2 norm before clipping and noise; never sent.
        example_count: Target tokens in one pass over the client's examples, whatever
            ``local_epochs`` says, at most the plan's ``example_cap``; with ``example_privacy`` the
            same for every client.
        mean_loss: Mean of the local objective over every target of every pass, in nats; measured
            while training, and never sent. NaN where ``example_privacy`` drew no example.
        optimiser_state: To be given to the client's next round where the plan keeps it, else None.
    """

    update: Tensor
    update_norm: float
    example_count: int
    mean_loss: float
    optimiser_state: OptimiserState | None


class LocalTrainer:
    """Train client after client on one device, with one network for all of them.

    A client leaves nothing behind for the next: parameters, state and draws are set anew.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device | str = "cpu",
        *,
        keys: NoiseKeys | None = None,
    ) -> None:
        """Build the plan's network.

        Args:
            plan: What to train.
            device: Where to train.
            keys: Keys of secret draws; the operating system's outside tests.

        Raises:
            ValueError: If the plan names a task or a personalisation method that is not there.
        """
        self._plan = plan
        self._device = torch.device(device)
        self._task = task_named(plan.task)
        self._schema = travelling_schema(plan.personalisation, schema_of(plan.model))
        self._tensors = [self._schema.slices[spec.name] for spec in self._schema.tensors]
        self._network = build_network(plan.model, self._device)
        self._keys = SystemKeys() if keys is None else keys
        privacy = plan.training.example_privacy
        self._by_example = (
            None
            if privacy is None
            else ExampleTraining(word_network(self._network), self._schema, plan.training, privacy)
        )

    def train(
        self,
        parameters: Tensor,
        examples: Any,  # of the plan's task; the task checks it
        *,
        round_number: int,
        client_name: str,
        optimiser_state: OptimiserState | None = None,
        into: Tensor | None = None,
        clipping_norm: float | None = None,
    ) -> LocalResult:
        """Train one client's round.

        Args:
            parameters: Received parameters, flat float32, shape ``(elements,)``; not changed.
            examples: The client's examples; for ``next_word`` an int64 stream, ``(tokens,)``.
            round_number: Round, from 1.
            client_name: Name given at enrolment.
            optimiser_state: What this client's last round returned; read only where the plan
                keeps it.
            into: Memory that the update may be written to, as ``parameters``; the result says
                where it lies.
            clipping_norm: This round's, where it changes from round to round and the plan has that
                of the first; else the plan's.

        Raises:
            UnusableExamplesError: If the examples cannot be trained on.
            UnusableUpdateError: If training ended in NaN or infinity.
            ValueError: If parameters or state do not fit the plan's model.
        """
        memory = self._receive(parameters, into)
        self._task.check(examples, self._network)
        seed = client_seed(self._plan.seed, round_number, client_name)
        dropout_seed = client_seed(self._plan.seed, round_number, client_name, purpose="dropout")
        use_generator(self._network, torch.Generator(device=self._device).manual_seed(dropout_seed))
        keeps_state = self._plan.training.optimiser_state == "kept"
        optimiser = Optimiser(self._network, self._schema, self._plan.training)
        if keeps_state and optimiser_state is not None:
            optimiser.load_state(optimiser_state)

        example_count = self._task.example_count(examples)
        if self._by_example is None:
            generator = torch.Generator().manual_seed(seed)
            objective = build_objective(self._plan.personalisation, self._task, parameters)
            mean_loss = self._descend(objective, optimiser, examples, generator)
        else:
            draws = SecretDraws(self._keys, f"round {round_number} client {client_name}")
            mean_loss = self._by_example.descend(optimiser, examples, draws)
            example_count = self._by_example.example_count

        update = self._difference(memory, parameters)
        privacy = self._plan.privacy
        if clipping_norm is not None:
            privacy = msgspec.structs.replace(privacy, clipping_norm=clipping_norm)
        clipped = clip_update(update, privacy, self._tensors)
        return LocalResult(
            update=self._sent(clipped, privacy, round_number, client_name),
            update_norm=clipped.norm,
            example_count=min(example_count, self._plan.training.example_cap),
            mean_loss=mean_loss,
            optimiser_state=optimiser.state() if keeps_state else None,
        )

    def _receive(self, parameters: Tensor, into: Tensor | None) -> Tensor | None:
        """Set the network's parameters; returns the memory they lie in where they are one vector.

        On a processor they lie in the update's own memory, so training itself writes there. An
        accelerator has its own layout for them.
        """
        if self._device.type != "cpu":
            load_parameters(self._network, self._schema, parameters)
            return None
        check_flat(parameters, self._schema)
        memory = torch.empty_like(parameters) if into is None else into
        lay_parameters(self._network, self._schema, memory)
        return memory.copy_(parameters)

    def _difference(self, memory: Tensor | None, parameters: Tensor) -> Tensor:
        """Return trained minus received parameters; ``memory`` becomes the answer."""
        if memory is None:
            return read_update(self._network, self._schema, parameters)
        return memory.sub_(parameters)

    def _descend(
        self,
        objective: LocalObjective,
        optimiser: Optimiser,
        examples: Any,
        generator: torch.Generator,
    ) -> float:
        """Run every local epoch and return the mean loss."""
        self._network.train()
        training = self._plan.training
        # Summed on the device: reading it after each step would wait for the accelerator.
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        target_count = 0
        for _ in range(training.local_epochs):
            state: Tensor | None = None
            for batch in self._task.batches(examples, training, self._network, generator):
                with self._precision():
                    loss, count, state = objective.loss(self._network, batch, state)
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimiser.step()
                loss_sum += loss.detach() * count
                target_count += count
        return float(loss_sum) / target_count

    @contextmanager
    def _precision(self) -> Iterator[None]:
        wanted = self._plan.training.precision == "bfloat16"
        enabled = wanted and gains_from_bfloat16(self._device)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=enabled):
            yield

    def _sent(
        self, clipped: ClippedUpdate, privacy: PrivacySettings, round_number: int, client_name: str
    ) -> Tensor:
        """Apply the client's half of the noise mode, and tell what the plan asks for."""
        seed = client_seed(self._plan.seed, round_number, client_name, purpose="randomisation")
        generator = torch.Generator().manual_seed(seed)
        mode = noise_mode(privacy)
        sent = mode.at_client(clipped.values, generator, tensors=self._tensors)
        if not privacy.tells_fit:
            return sent
        return torch.cat([sent, torch.tensor([float(clipped.has_fitted)])])


def run_training(
    plan: Plan,
    parameters: Tensor,
    examples: Any,  # of the plan's task; the task checks it
    *,
    round_number: int,
    client_name: str,
    device: torch.device | str = "cpu",
    optimiser_state: OptimiserState | None = None,
    keys: NoiseKeys | None = None,
) -> LocalResult:
    """Train one client's round: ``LocalTrainer.train`` for a process that trains one client.

    Args:
        plan: What to train.
        parameters: Received parameters, flat float32, shape ``(elements,)``; not changed.
        examples: The client's examples; for ``next_word`` an int64 stream, ``(tokens,)``.
        round_number: Round, from 1.
        client_name: Name given at enrolment.
        device: Where to train.
        optimiser_state: What this client's last round returned, where the plan keeps it.
        keys: Keys of secret draws; the operating system's outside tests.

    Raises:
        UnusableExamplesError: If the examples cannot be trained on.
        UnusableUpdateError: If training ended in NaN or infinity.
        ValueError: If something does not fit the plan.
    """
    return LocalTrainer(plan, device, keys=keys).train(
        parameters,
        examples,
        round_number=round_number,
        client_name=client_name,
        optimiser_state=optimiser_state,
    )


def run_evaluation(
    plan: Plan, parameters: Tensor, examples: Any, device: torch.device | str = "cpu"
) -> Counts:
    """Score the parameters on one client's held-out examples, in float32.

    Args:
        plan: Names the task and the model.
        parameters: Flat float32, shape ``(elements,)``.
        examples: The client's examples; for ``next_word`` an int64 stream, ``(tokens,)``.
        device: Where to score.

    Raises:
        ValueError: If something does not fit the plan.
    """
    return evaluate_users(plan, parameters, [examples], device=device)


def evaluate_users(
    plan: Plan,
    parameters: Tensor,
    users: Sequence[Any],  # of the plan's task
    *,
    device: torch.device | str = "cpu",
    batch_size: int = EVALUATION_BATCH,
) -> Counts:
    """Score the parameters on the held-out examples of many people, each apart from the others.

    Args:
        plan: Names the task and the model.
        parameters: Flat float32, shape ``(elements,)``.
        users: Examples of one person each.
        device: Where to score.
        batch_size: Texts read side by side; changes the speed alone.

    Raises:
        ValueError: If something does not fit the plan.
    """
    network = build_network(plan.model, device)
    schema = travelling_schema(plan.personalisation, schema_of(plan.model))
    load_parameters(network, schema, parameters)
    return task_named(plan.task).evaluate(network, users, batch_size=batch_size)
