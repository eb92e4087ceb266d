"""Let a client's nearest training examples vote beside its network (kNN-Per, FedTP+kNN).

A store holds the features of a client's own training examples, found again by exact search. Only
evaluation uses it. It is the client's data in another form: it lives as long as the process that
made it, and nothing here can write it, send it or read one back.

References:
    [kNN-Per] Marfoq et al., ICML 2022, arXiv:2111.09360; and its authors' code for the kernel.
    [kNN-LM] Khandelwal et al., ICLR 2020, arXiv:1911.00172: the same for next words.
    [FedTP] Li et al., arXiv:2211.01572, section IV-G: k = 10, vote's share 0.6, every example.
"""

import importlib.util
import math
from typing import NoReturn

import torch
from torch import Tensor

from models.settings.personalisation import NeighbourSettings

_SPARE_CANDIDATES = 6
"""Neighbours fetched beyond those asked for, so that equal distances are ranked here."""


class MissingFaissError(ValueError):
    """Raised when a plan asks for neighbours and FAISS is not installed."""


def require_faiss() -> None:
    """Raise ``MissingFaissError`` if FAISS is not installed; nothing is loaded."""
    if importlib.util.find_spec("faiss") is None:
        raise MissingFaissError("FAISS is missing; install sotto[neighbours]")


def stored_places(example_count: int, capacity: float, generator: torch.Generator) -> Tensor:
    """Draw which of a client's examples are stored: int64, rising, shape ``(stored,)``.

    ``capacity`` is their share, rounded up, in (0, 1]; if everything is stored, nothing is drawn.
    """
    stored = math.ceil(capacity * example_count)
    if stored == example_count:
        return torch.arange(example_count)
    return torch.randperm(example_count, generator=generator)[:stored].sort().values


class NeighbourStore:
    """One client's training features with their labels, the nearest of which vote."""

    def __init__(self, features: Tensor, labels: Tensor, settings: NeighbourSettings) -> None:
        """Store features, ``(stored, embed)``, with int64 classes or next words, ``(stored,)``.

        Raises:
            MissingFaissError: If FAISS is not installed.
            ValueError: If there is nothing to store, shapes differ, or a feature is not finite.
        """
        require_faiss()
        if features.ndim != 2 or len(features) < 1 or labels.shape != (len(features),):
            raise ValueError(
                "features must have shape (stored, embed) and labels (stored,) with stored >= 1, "
                f"got {tuple(features.shape)} and {tuple(labels.shape)}"
            )
        if not bool(torch.isfinite(features).all()):
            raise ValueError("features must be finite; lower the learning rate")
        import faiss

        self._features = features.detach().to("cpu", torch.float32).contiguous()
        self._labels = labels.cpu()
        self._settings = settings
        self._index = faiss.IndexFlatL2(features.shape[1])
        # FAISS would take every core, beside other workers.
        faiss.omp_set_num_threads(torch.get_num_threads())
        self._index.add(self._features.numpy())

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: another process makes its store anew from the examples."""
        raise TypeError("a store of neighbours is a client's data and never leaves its process")

    def mix(self, logits: Tensor, queries: Tensor) -> Tensor:
        """Return the logarithm of ``share`` vote + (1 - ``share``) softmax, float32.

        ``logits`` and the result have shape ``(queries, classes)``, features ``(queries, embed)``.
        -inf stands where neither gives a class anything.
        """
        votes, labels = self._votes(queries)
        share = self._settings.share
        mixed = torch.softmax(logits.float(), 1) * (1 - share)
        mixed.scatter_add_(1, labels.to(mixed.device), share * votes.to(mixed.device))
        return mixed.log()

    def _votes(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight and the label of each query's neighbours, shapes ``(queries, k)``.

        Weights are e^{-d²/embed}, divided by their sum, as a softmax so that none underflows.
        """
        queries = queries.detach().to("cpu", torch.float32).contiguous()
        squares, places = self._nearest(queries)
        votes = torch.softmax(-squares / queries.shape[1], 1)
        return votes.float(), self._labels[places]

    def _nearest(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distances, float64, and places of the nearest, shapes ``(queries, k)``.

        FAISS's rounding depends on how many queries are asked at once. So the candidates' distances
        are computed again from differences, and ties go to the earlier example: a vote depends on
        its own query alone.
        """
        count = min(self._settings.count, len(self._labels))
        fetched = min(count + _SPARE_CANDIDATES, len(self._labels))
        _, found = self._index.search(queries.numpy(), fetched)
        places = torch.from_numpy(found).sort(dim=1).values
        differences = queries.unsqueeze(1).double() - self._features[places].double()
        squares, order = differences.square().sum(2).sort(dim=1, stable=True)
        return squares[:, :count], places.gather(1, order[:, :count])
