"""The protocol of a personalisation method's client half, and what it is given.

Roles say which tensors a client keeps and which it sends; the loop in
``edge_client.descent.descent``
trains them. A client half says what a method does beyond that: in which order it trains what, by
which objective, what it keeps beside the model, and how it predicts. One object serves client after
client and keeps nothing between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from edge_client.descent.descent import Descent
from edge_client.descent.optimisers import Optimiser
from models.networks.registry import Network
from models.plan.plan import TrainingSettings
from models.tasks.metrics import Counts
from models.tasks.registry import Task
from models.tasks.scoring import WordScores
from models.vector.schema import Schema, TensorSpec


@dataclass(frozen=True)
class ClientRound:
    """The parts that one client's training needs.

    Attributes:
        descent: Trains the network on the client's examples. The network holds the received
            tensors and the client's personal ones.
        optimiser: One of all the network's parameters; its state is the one that is kept where the
            plan keeps it.
        schema: Every tensor of the model, with its role.
        received: The model as the client starts from it, personal tensors included: flat float32
            in the order of ``schema``, on the CPU; not to be changed.
        extras: The tensors that the client kept beside the model, by name; not to be changed.
    """

    descent: Descent
    optimiser: Optimiser
    schema: Schema
    received: Tensor
    extras: Mapping[str, Tensor]


class Learnt(NamedTuple):
    """The outcome of a client's training, beside what the network now holds.

    Attributes:
        mean_loss: Mean training loss in nats.
        extras: The tensors that the client keeps beside the model, by name, on the CPU; every one
            that ``extra_tensors`` lists.
    """

    mean_loss: float
    extras: Mapping[str, Tensor]


@dataclass(frozen=True)
class ClientScoring:
    """The parts that scoring one client's model needs.

    Attributes:
        network: Holds the client's model: shared, generated and personal tensors.
        task: The plan's.
        schema: Every tensor of the model, with its role.
        extras: The tensors that the client keeps beside the model, by name; not to be changed.
        examples: The examples that are scored, of the task.
        training_examples: The client's own training examples; a method may look at them.
        training: The plan's.
        generator: Draws, for a method that predicts by sampling; the same for the same client
            whatever the round.
        batch_size: Examples read side by side; changes the speed alone.
        device: Where the network lies.
    """

    network: Network
    task: Task[Any, Any]
    schema: Schema
    extras: Mapping[str, Tensor]
    examples: Any
    training_examples: Any
    training: TrainingSettings
    generator: torch.Generator
    batch_size: int
    device: torch.device


class ClientHalf(Protocol):
    """A method's part on a device, beyond roles."""

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return what a client keeps beside its personal tensors; names unlike the model's.

        Args:
            schema: Every tensor of the model, with its role.

        Raises:
            ValueError: If the method cannot work on such a model.
        """
        ...

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return what a client that never trained is taken to keep.

        Args:
            schema: Every tensor of the model, with its role.
            model: The model as the client would start from it, flat float32 in that order, on the
                CPU; not to be changed.
        """
        ...

    def train(self, client: ClientRound) -> Learnt:
        """Train one client, and leave in the network what is to be sent and kept."""
        ...

    def evaluate(self, client: ClientScoring) -> Counts:
        """Score one client's model on the client's examples.

        Args:
            client: The client's model and examples.
        """
        ...


@runtime_checkable
class ScoresWords(Protocol):
    """A client half whose next words come from more than the network that it is given."""

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Lay the model that predicts into the network, and return what scores its words.

        Args:
            client: The client's model and training examples; ``examples`` are not read.
        """
        ...
