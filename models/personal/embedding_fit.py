"""Give a client that never took part a model of its own: fit its embedding, and nothing else.

Hypernetwork φ and shared parameters ξ stay as they are. The client generates its tensors from z,
trains them on its own examples, and pulls the change back to z by the server's vector-Jacobian
product. Only 32 numbers are learnt, so a few examples are enough, and nothing is sent.

The result of one pass depends on where z starts. So several embeddings are drawn from N(0, 1), like
those of the trained clients, and the fit starts from the one whose tensors have the lowest loss.
Other clients' embeddings would be starts too, but are private to them.

The size of the pulled-back change depends on the local step size. The embedding steps by Adam,
which is free of such a scale: its step size is in units of an embedding, whose numbers are drawn
from N(0, 1), and one default serves any local training.

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
    """Return the embedding whose tensors have the lowest loss, the first among equals.

    Embeddings are float32, ``(embedding_size,)``; ``loss`` takes a client's flat tensors, and is
    called only if there is a choice.
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
        start: First embedding, float32, shape ``(embedding_size,)``; not changed.
        trainings: Called with each epoch's number, from 1, for the trainings that make up one pass
            over the examples: one over all of them steps as a server's round does, one a batch
            descends through the hypernetwork batch by batch.
        settings: Epochs and step size.
        after_epoch: Called with the epoch's number and the client's tensors after it, flat float32,
            shape ``(generated elements,)``: to record an accuracy.

    Raises:
        DivergedFitError: If a value is no longer finite.
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
