"""Give a client that never took part a model of its own: fit its embedding, and nothing else.

Hypernetwork φ and shared parameters ξ stay as they are. The client generates its tensors from z,
trains them on its own examples, and pulls what training did back to z by the same vector-Jacobian
product as the server's: 32 numbers are learnt, so a few examples are enough, and nothing is sent.

Which way z can go in one pass depends on where it starts. So several embeddings are drawn from
N(0, 1), as those of the clients that were trained on once were, and the fit starts from the one
whose tensors lose least. The embeddings of other clients would be starts too, but are theirs.

What training does to the tensors is larger or smaller with its own step size, and so is what is
pulled back. The embedding steps by Adam, which knows no such scale: its step size is in the units
of an embedding, whose numbers are drawn from N(0, 1), and one default serves any local training.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV (generalisation to novel clients).
    [pFedHN] Shamsian et al., ICML 2021, arXiv:2103.04628, section 5.3.
    Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, arXiv:1412.6980.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from models.personal.hypernetwork import Hypernetwork
from models.settings.hypernetwork import EmbeddingFitSettings

LocalTraining = Callable[[Tensor], Tensor]
"""Train generated tensors, flat float32 of shape ``(generated elements,)``, from where they are
given, the shared ones frozen, and return trained minus given in the same layout."""


class DivergedFitError(ValueError):
    """Raised when an embedding leaves the finite numbers."""


def best_start(
    hypernetwork: Hypernetwork, starts: Sequence[Tensor], loss: Callable[[Tensor], float]
) -> Tensor:
    """Return the embedding whose tensors lose least, the first of those that lose alike.

    Args:
        hypernetwork: φ; not changed.
        starts: Embeddings, at least one, float32, shape ``(embedding_size,)`` each.
        loss: Says what a client's tensors, flat float32 of shape ``(generated elements,)``, lose on
            its own examples; asked only where there is a choice.
    """
    if len(starts) == 1:
        return starts[0]
    return min(starts, key=lambda start: loss(hypernetwork.generate(start)))


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
        after_epoch: Called with the epoch's number and the client's tensors after it, flat
            float32, shape ``(generated elements,)``: to record an accuracy.

    Raises:
        DivergedFitError: If a value is no longer finite.
        ValueError: If an update or the embedding does not fit.
    """
    embedding = start.clone()
    step = _AdamStep(embedding, settings.learning_rate)
    for epoch in range(1, settings.epochs + 1):
        for train in trainings(epoch):
            update = train(hypernetwork.generate(embedding))
            step(hypernetwork.pull_back_to_embedding(embedding, update))
            if not torch.isfinite(embedding).all():
                raise DivergedFitError(
                    f"the embedding must stay finite, it left in epoch {epoch}; lower "
                    f"learning_rate, which is {settings.learning_rate:g}"
                )
        if after_epoch is not None:
            after_epoch(epoch, hypernetwork.generate(embedding))
    return embedding


class _AdamStep:
    """An optimiser that moves an embedding against gradients, in place."""

    def __init__(self, embedding: Tensor, learning_rate: float) -> None:
        self._embedding = embedding
        self._learning_rate = learning_rate
        self._count = torch.zeros(())
        self._mean = torch.zeros_like(embedding)
        self._square = torch.zeros_like(embedding)

    def __call__(self, gradient: Tensor) -> None:
        """Take a step."""
        adam(
            [self._embedding],
            [gradient],
            [self._mean],
            [self._square],
            [],
            [self._count],
            fused=True,
            lr=self._learning_rate,
            weight_decay=0.0,
            beta1=0.9,
            beta2=0.999,
            eps=1e-12,
            amsgrad=False,
            maximize=False,
        )
