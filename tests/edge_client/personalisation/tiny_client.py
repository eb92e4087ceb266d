"""A network of a few numbers and a task that a reader can follow by hand."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from edge_client.descent.descent import Descent
from edge_client.descent.optimisers import Optimiser
from edge_client.personalisation.method import ClientHalf, ClientRound, ClientScoring, Learnt
from models.networks.flat_parameters import load_parameters, read_parameters
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.registry import Task
from models.vector.schema import Role, Schema, TensorSpec

Named = Mapping[str, float | list[float]]


class Sum(nn.Module):
    """Predict the sum of its numbers: ``body`` and ``head``."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Parameter(torch.zeros(1))
        self.head = nn.Parameter(torch.zeros(1))


class HalfSquare:
    """Minimise (body + head - x)²/2 over one batch an epoch; count as hits what is predicted."""

    def batches(
        self, examples: Tensor, training: Any, network: Any, generator: Any
    ) -> Iterator[Tensor]:
        yield examples

    def loss(self, network: Any, batch: Tensor, state: Any) -> tuple[Tensor, int, None]:
        return ((network.body + network.head - batch).square() / 2).mean(), len(batch), None

    def evaluate(self, network: Any, users: Any, *, batch_size: int) -> Counts:
        (examples,) = users
        apart = network.body + network.head - examples
        return Counts(
            token_count=len(examples),
            log_loss_sum=float((apart.detach().square() / 2).sum()),
            top1_hits=int((apart.abs() < 1e-6).sum()),
        )


def schema(head: Role = Role.SHARED) -> Schema:
    """Return the two numbers' schema."""
    return Schema(
        (
            TensorSpec(name="body", shape=(1,), layer="body"),
            TensorSpec(name="head", shape=(1,), layer="head", role=head),
        )
    )


def train(
    half: ClientHalf,
    *,
    body: float = 0.0,
    head: float = 0.0,
    examples: list[float],
    learning_rate: float,
    epochs: int = 1,
    head_role: Role = Role.SHARED,
    extras: Named | None = None,
    round_number: int = 1,
) -> tuple[Learnt, dict[str, float]]:
    """Train one client; returns what it learnt and what the network then holds."""
    network, tensors = cast(Any, Sum()), schema(head_role)
    received = torch.tensor([body, head])
    load_parameters(network, tensors, received)
    training = TrainingSettings(
        learning_rate=learning_rate, local_epochs=epochs, batch_size=8, bptt_steps=1
    )
    kept = (
        half.first_extras(tensors, received)
        if extras is None
        else {name: torch.as_tensor(value).reshape(-1) for name, value in extras.items()}
    )
    descent = Descent(
        network,
        cast(Task[Any, Any], HalfSquare()),
        torch.tensor(examples),
        training,
        generator=torch.Generator(),
        device=torch.device("cpu"),
    )
    optimiser = Optimiser(network, tensors, training)
    learnt = half.train(ClientRound(descent, optimiser, tensors, received, kept, round_number))
    assert received.tolist() == torch.tensor([body, head]).tolist()
    held = read_parameters(network, tensors)
    return learnt, {"body": float(held[0]), "head": float(held[1])}


def hits(
    half: ClientHalf, example: float, *, body: float, head: float, extras: Named | None = None
) -> int:
    """Return 1 if a client with this model predicts the example, else 0."""
    network, tensors = cast(Any, Sum()), schema()
    model = torch.tensor([body, head])
    load_parameters(network, tensors, model)
    counts = half.evaluate(
        ClientScoring(
            network=network,
            task=cast(Task[Any, Any], HalfSquare()),
            schema=tensors,
            extras=half.first_extras(tensors, model)
            if extras is None
            else {name: torch.as_tensor(value).reshape(-1) for name, value in extras.items()},
            examples=torch.tensor([example]),
            training_examples=None,
            training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=1),
            generator=torch.Generator(),
            batch_size=1,
            device=torch.device("cpu"),
        )
    )
    return counts.top1_hits
