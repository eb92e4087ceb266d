"""Settings of the hypernetwork, and the schema of its own parameters that they imply. No torch.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section III-C; the authors' code settles what
        the paper leaves open.
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628.
"""

from typing import Literal

import msgspec

from models.settings.bounds import (
    check_at_least,
    check_below_one,
    check_not_negative,
    check_positive,
)
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import linear_tensors, tensor

HIDDEN_LAYER_COUNT = 3
"""Hidden layers after the first, each behind a ReLU."""


class HypernetworkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of the hypernetwork, and how the server trains it.

    Attributes:
        embedding_size: Length of a client's embedding z_i; D in [FedTP].
        hidden_size: Width of every hidden layer; 150 in [FedTP], 100 in [pFedHN].
        output: How each generated tensor is made from the last hidden layer: ``mixture``, a base
            and ``basis_size`` directions of its own that the client mixes; or ``literal``, one full
            linear layer as published: 237.6 million parameters for the paper's ViT of depth 8.
        basis_size: Directions of each tensor under ``mixture``. 14 at a width of 150 make a tenth
            of the literal output's parameters.
        spectral_norm: Whether every linear layer's matrix is divided by its largest singular value,
            an option of the authors' code; base and directions of ``mixture`` are not.
        embeddings: ``learned`` with the hypernetwork, or ``fixed`` as they were drawn.
        learning_rate: Step size β of hypernetwork and embeddings.
        embedding_learning_rate: Step size of the embeddings alone; absent means ``learning_rate``.
            An embedding gets only its own client's share of the gradient; with many clients a
            larger step makes up for that.
        momentum: Momentum of both, in [0, 1).
        weight_decay: L2 penalty's coefficient; an embedding decays only in its client's rounds.
        gradient_clipping_norm: Largest L2 norm of the hypernetwork's gradient in one step, and of
            each embedding's by itself; 50 in [pFedHN]; absent means none.
        client_gradient_norm: Largest L2 norm of what one client adds to the hypernetwork's gradient
            before the average. Decides the noise of mode ``central``, which needs it; absent means
            no limit.
    """

    embedding_size: int = 32
    hidden_size: int = 150
    output: Literal["mixture", "literal"] = "mixture"
    basis_size: int = 14
    spectral_norm: bool = False
    embeddings: Literal["learned", "fixed"] = "learned"
    learning_rate: float = 0.01
    embedding_learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-3
    gradient_clipping_norm: float | None = None
    client_gradient_norm: float | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "embedding_size", "hidden_size", "basis_size")
        check_positive(self, "learning_rate", "embedding_learning_rate")
        check_below_one(self, "momentum")
        check_not_negative(self, "weight_decay")
        check_positive(self, "gradient_clipping_norm", "client_gradient_norm")

    @property
    def embedding_step(self) -> float:
        """Return the step size of the embeddings."""
        rate = self.embedding_learning_rate
        return self.learning_rate if rate is None else rate


class EmbeddingFitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an embedding is fitted.

    Attributes:
        start_count: Embeddings that are drawn; the fit starts from the one with the lowest loss on
            the client's own examples, which costs a forward pass over them each.
        epochs: Passes over the client's own examples.
        batch_size: Examples, or parallel texts, of one step; few, so that one pass over few
            examples is many steps.
        learning_rate: How far each number of the embedding moves in the first step, and about the
            most that it moves in any other.
    """

    start_count: int = 32
    epochs: int = 1
    batch_size: int = 4
    learning_rate: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "start_count", "epochs", "batch_size")
        check_positive(self, "learning_rate")


def embedding_schema(settings: HypernetworkSettings) -> Schema:
    """Return the schema of what a device with a fitted embedding sends: z_i alone."""
    size = settings.embedding_size
    return Schema((TensorSpec(name="embedding", shape=(size,), layer="embedding"),))


def hypernetwork_schema(settings: HypernetworkSettings, generated: Schema) -> Schema:
    """Return the hypernetwork's own tensors, φ, in the order of its flat vector."""
    width = settings.hidden_size
    layers = [(width, settings.embedding_size), *[(width, width)] * HIDDEN_LAYER_COUNT]
    # ReLUs stand between: every other place of the sequence.
    body = [
        spec
        for index, (rows, columns) in enumerate(layers)
        for spec in linear_tensors(f"body.{2 * index}", rows, columns)
    ]
    outputs = [
        spec
        for index, made in enumerate(generated.tensors)
        for spec in _output(settings, f"outputs.{index}", made.element_count)
    ]
    return Schema((*body, *outputs))


def _output(settings: HypernetworkSettings, name: str, count: int) -> list[TensorSpec]:
    if settings.output == "literal":
        return linear_tensors(name, count, settings.hidden_size)
    # A tensor never has more directions than elements.
    basis_size = min(settings.basis_size, count)
    return [
        tensor(name, "base", count),
        tensor(name, "basis", basis_size, count),
        *linear_tensors(f"{name}.mixing", basis_size, settings.hidden_size),
    ]
