"""The protocol of a personalisation method's client half, and its inputs.

Roles say which tensors a client keeps and which it sends; ``edge_client.descent.descent`` trains
them. A client half says what a method does beyond that: the order and objective of training, what
it keeps beside the model, and how it predicts. It keeps nothing between clients.
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
    """The parts that one client's training needs; none of the tensors here may be changed.

    Attributes:
        descent: Trains the network, which holds the received and the personal tensors.
        optimiser: One of all the network's parameters, with the state that the plan keeps, if any.
        received: The model as the client starts from it, personal tensors included: flat float32 in
            the order of ``schema``, on the CPU.
        extras: The tensors that the client kept beside the model, by name.
        round_number: Round, from 1.
    """

    descent: Descent
    optimiser: Optimiser
    schema: Schema
    received: Tensor
    extras: Mapping[str, Tensor]
    round_number: int


class Learnt(NamedTuple):
    """The outcome of a client's training, beside what the network now holds.

    ``mean_loss`` is in nats; ``extras``, on the CPU, are all that ``extra_tensors`` lists.
    """

    mean_loss: float
    extras: Mapping[str, Tensor]


@dataclass(frozen=True)
class ClientScoring:
    """The parts that scoring one client's model needs.

    Attributes:
        network: Holds the client's model: shared, generated and personal tensors.
        extras: The tensors that the client keeps beside the model, by name; not to be changed.
        training_examples: The client's own training examples; a method may look at them.
        generator: Draws for a method that predicts by sampling; the same in every round.
        batch_size: Examples read side by side; changes the speed alone.
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


@runtime_checkable
class ClientHalf(Protocol):
    """A method's part on a device, beyond roles."""

    def extra_tensors(self, schema: Schema) -> tuple[TensorSpec, ...]:
        """Return what a client keeps beside its personal tensors; names unlike the model's.

        Raises:
            ValueError: If the method cannot work on such a model.
        """
        ...

    def first_extras(self, schema: Schema, model: Tensor) -> Mapping[str, Tensor]:
        """Return what a client that never trained is taken to keep.

        It would start from ``model``, flat float32 in schema order, on the CPU; not to be changed.
        """
        ...

    def train(self, client: ClientRound) -> Learnt:
        """Train one client, and leave in the network what is to be sent and kept."""
        ...

    def evaluate(self, client: ClientScoring) -> Counts:
        """Score one client's model on the client's examples."""
        ...


@runtime_checkable
class ScoresWords(Protocol):
    """A client half whose next words come from more than the network that it is given."""

    def word_scores(self, client: ClientScoring) -> WordScores:
        """Lay the predicting model into the network, and return what scores its words."""
        ...
