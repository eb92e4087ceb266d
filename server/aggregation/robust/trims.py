"""The updates of a round to leave out, and those that count as one.

References:
    [Median] Yin et al., ICML 2018, arXiv:1803.01498, Definition 1.
    [FLTrust] Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping",
        NDSS 2021, arXiv:2012.13995, Eq. 2: an update that points away from a trusted one counts
        nothing. Here the cohort, or the run so far, replaces one trained on a server's data.
    [CC] Karimireddy, He and Jaggi, ICML 2021, arXiv:2012.10333: no rule that looks at one round
        alone finds a client that goes a little astray in each; one that remembers may.
    [FoolsGold] Fung, Yoon and Beschastnikh, "The Limitations of Federated Learning in Sybil
        Settings", RAID 2020, arXiv:1808.04866: updates that are too much alike weigh less.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from server.aggregation.robust.coordinate_wise import coordinate_median
from server.aggregation.robust.pairwise import InnerProducts, Matrix, cosines_of, median_cosines


class FarFromMedian:
    """The updates with the largest distances from the coordinate-wise median."""

    def __init__(self) -> None:
        self._squares: list[float] = []

    def add(self, rows: Tensor) -> None:
        """Add a chunk, shape ``(cohort, chunk elements)``, to the distances; overwrite it."""
        # In place: the rows are read again for every pass.
        away = rows.sub_(coordinate_median(rows)).numpy()
        squares = np.vecdot(away, away).astype(np.float64).tolist()
        before = self._squares or [0.0] * len(squares)
        self._squares = [old + new for old, new in zip(before, squares, strict=True)]

    def left_out(self, most: int) -> frozenset[int]:
        """Return the rows of the ``most`` largest distances; among equal ones the lower stays."""
        return _highest(self._squares, most)


class Angles:
    """The directions of a round's updates, against each other and the model's heading.

    Honest updates share a direction while there is much to learn. Late in training two of them
    share next to nothing, but each still goes along with the sum of many rounds.
    """

    def __init__(self, heading: Tensor | None = None) -> None:
        self._heading = heading
        self._products = InnerProducts()

    def add(self, rows: Tensor, where: slice) -> None:
        """Add one chunk, shape ``(cohort, chunk elements)``, at its place in the flat vector."""
        beside = None if self._heading is None else self._heading[where]
        self._products.add(rows, beside)

    def left_out(self, most: int) -> frozenset[int]:
        """Return at most ``most`` rows that oppose: their cosine with the heading is below 0.

        Those that oppose most go first; among equal ones the lower stays. The median cosine with
        the others counts without a heading, or if more than ``most`` oppose it: then it is wrong.
        """
        along = self._along_heading()
        if along is None or (along < 0).sum() > most:
            along = median_cosines(self._cosines())
        opposed: list[float] = (-along).tolist()
        return frozenset(client for client in _highest(opposed, most) if opposed[client] > 0)

    def votes(self, sybil_cosine: float) -> list[float]:
        """Return 1 over the number of updates that each is like; those left out count too."""
        cosines = self._cosines()
        np.fill_diagonal(cosines, 1.0)  # Of an update of zeros too.
        votes: list[float] = (1 / (cosines >= sybil_cosine).sum(axis=1)).tolist()
        return votes

    def _along_heading(self) -> Matrix | None:
        return None if self._heading is None else cosines_of(self._products.gram)[:-1, -1]

    def _cosines(self) -> Matrix:
        cosines = cosines_of(self._products.gram)
        return cosines if self._heading is None else cosines[:-1, :-1]


def _highest(scores: Sequence[float], most: int) -> frozenset[int]:
    """Return the rows of the highest scores; among equal ones the lower stays."""
    count = len(scores)
    return frozenset(sorted(range(count), key=lambda client: scores[client])[count - most :])
