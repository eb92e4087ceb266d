"""Say which updates of a round to leave out, and which of them count as one.

By distance those far from where the round is are left out, by their angles those that oppose: the
others, or where the model has been going.

References:
    [Median] Yin et al., ICML 2018, arXiv:1803.01498, Definition 1.
    [FLTrust] Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping",
        NDSS 2021, arXiv:2012.13995, Eq. 2: an update that points away from one the server trusts
        counts nothing. Here the cohort, or the run so far, stands for what a server without data
        cannot train.
    [CC] Karimireddy, He and Jaggi, ICML 2021, arXiv:2012.10333: no rule that looks at one round
        alone finds who goes a little astray in each; one that remembers may.
    [FoolsGold] Fung, Yoon and Beschastnikh, "The Limitations of Federated Learning in Sybil
        Settings", RAID 2020, arXiv:1808.04866: updates that are too much alike weigh less.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from server.aggregation.robust.coordinate_wise import coordinate_median
from server.aggregation.robust.pairwise import InnerProducts, Matrix, cosines_of, median_cosines


class FarFromMedian:
    """Leave out as many as may be: the largest distances from the coordinate-wise median."""

    def __init__(self) -> None:
        """Start before the first chunk."""
        self._squares: list[float] = []

    def add(self, rows: Tensor) -> None:
        """Add one chunk to everybody's squared distance.

        Args:
            rows: float32, shape ``(cohort, chunk elements)``; overwritten.
        """
        # In place: the rows are read again for every pass.
        away = rows.sub_(coordinate_median(rows)).numpy()
        squares = np.vecdot(away, away).astype(np.float64).tolist()
        before = self._squares or [0.0] * len(squares)
        self._squares = [old + new for old, new in zip(before, squares, strict=True)]

    def left_out(self, most: int) -> frozenset[int]:
        """Return so many rows, the furthest; of equal ones the lower stays."""
        return _highest(self._squares, most)


class Angles:
    """Compare the directions of a round's updates with each other and with the model's heading.

    Honest updates share a direction while there is much to learn. Late in training two of them
    share next to nothing, but each still goes along with what many rounds have summed up.
    """

    def __init__(self, heading: Tensor | None = None) -> None:
        """Start before the first chunk.

        Args:
            heading: Where the model has been going, flat float32, shape ``(elements,)``; None
                where that is not known, or does not count.
        """
        self._heading = heading
        self._products = InnerProducts()

    def add(self, rows: Tensor, where: slice) -> None:
        """Look at one chunk.

        Args:
            rows: float32, shape ``(cohort, chunk elements)``.
            where: Its place in the flat vector.
        """
        beside = None if self._heading is None else self._heading[where]
        self._products.add(rows, beside)

    def left_out(self, most: int) -> frozenset[int]:
        """Return who opposes: the cosine with the heading is below 0.

        Without a heading the median of the cosines with all others takes its place; also where more
        oppose the heading than may be left out, since then it is the heading that is wrong. So a
        way on which most honest clients would turn back does not choose who stays.

        Args:
            most: As many at most, those that oppose most; of equal ones the lower stays.
        """
        along = self._along_heading()
        if along is None or (along < 0).sum() > most:
            along = median_cosines(self._cosines())
        opposed: list[float] = (-along).tolist()
        return frozenset(client for client in _highest(opposed, most) if opposed[client] > 0)

    def votes(self, sybil_cosine: float) -> list[float]:
        """Return 1 over the number of updates that are like each, itself among them.

        Those that are left out count too: what is like a bad update is not the better for it.

        Args:
            sybil_cosine: Cosine from which two are alike.
        """
        cosines = self._cosines()
        np.fill_diagonal(cosines, 1.0)  # Of an update of zeros too.
        votes: list[float] = (1 / (cosines >= sybil_cosine).sum(axis=1)).tolist()
        return votes

    def _along_heading(self) -> Matrix | None:
        """Return everybody's cosine with the heading, shape ``(cohort,)``."""
        return None if self._heading is None else cosines_of(self._products.gram)[:-1, -1]

    def _cosines(self) -> Matrix:
        """Return those of the updates with each other, shape ``(cohort, cohort)``."""
        cosines = cosines_of(self._products.gram)
        return cosines if self._heading is None else cosines[:-1, :-1]


def _highest(scores: Sequence[float], most: int) -> frozenset[int]:
    """Return as many of the highest; sorting is stable, so of equal ones the lower stays."""
    count = len(scores)
    return frozenset(sorted(range(count), key=lambda client: scores[client])[count - most :])
