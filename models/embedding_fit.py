"""Give a client that never took part a model of its own: fit its embedding, and nothing else.

Hypernetwork φ and shared parameters ξ stay as they are. The client generates its tensors from z,
trains them on its own examples, and pulls what training did back to z by the same vector-Jacobian
product as the server's: 32 numbers are learnt, so a few examples are enough, and nothing is sent.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV (generalisation to novel clients).
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628, section 5.3.
"""

import math
from collections.abc import Callable, Iterable

import msgspec
import torch
from torch import Tensor

from models.hypernetwork import Hypernetwork

LocalTraining = Callable[[Tensor], Tensor]
"""Train generated tensors, flat float32 of shape ``(generated elements,)``, from where they are
given, the shared ones frozen, and return trained minus given in the same layout."""


class EmbeddingFitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Say how an embedding is fitted.

    Attributes:
        epochs: Passes over the client's own examples.
        learning_rate: Step size of the embedding. The server's 0.01 hardly moves an embedding in
            one pass: what it sees of a client adds up over many rounds.
        momentum: Its momentum in [0, 1).
    """

    epochs: int = 1
    learning_rate: float = 0.1
    momentum: float = 0.9

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be >= 1, got {self.epochs}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be > 0 and finite, got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}")


class DivergedFitError(ValueError):
    """Raised when an embedding leaves the finite numbers."""


def fit_embedding(
    hypernetwork: Hypernetwork,
    start: Tensor,
    trainings: Callable[[int], Iterable[LocalTraining]],
    settings: EmbeddingFitSettings,
    *,
    after_epoch: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Return the embedding fitted to a client's own examples.

    Args:
        hypernetwork: φ; not changed.
        start: Where the embedding starts, float32, shape ``(embedding_size,)``; not changed.
        trainings: Called with each epoch's number, from 1, for the trainings that make up one
            pass over the examples: a single one over all of them steps as a round of the server's
            does, one a batch descends through the hypernetwork batch by batch.
        settings: Epochs and steps.
        after_epoch: Called with the epoch's number and the client's tensors after it, flat
            float32, shape ``(generated elements,)``: to record an accuracy.

    Raises:
        DivergedFitError: If a value is no longer finite.
        ValueError: If an update or the embedding does not fit.
    """
    embedding, velocity = start.clone(), torch.zeros_like(start)
    for epoch in range(1, settings.epochs + 1):
        for train in trainings(epoch):
            update = train(hypernetwork.generate(embedding))
            velocity.mul_(settings.momentum).add_(
                hypernetwork.pull_back_to_embedding(embedding, update)
            )
            embedding.sub_(velocity, alpha=settings.learning_rate)
            if not torch.isfinite(embedding).all():
                raise DivergedFitError(
                    f"the embedding must stay finite, it left in epoch {epoch}; lower "
                    f"learning_rate, which is {settings.learning_rate:g}"
                )
        if after_epoch is not None:
            after_epoch(epoch, hypernetwork.generate(embedding))
    return embedding
