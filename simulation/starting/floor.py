"""The floor that a start must beat: a bigram counted on the text that it learns from."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from simulation.figures.baselines import InterpolatedBigram
from simulation.starting.finishing import Measured
from simulation.starting.texts import Corpus

_FITTED_PIECE = 10


def bigram_figures(
    corpus: Corpus, measured: Mapping[str, Sequence[Tensor]], vocabulary_size: int
) -> Measured:
    """Return the interpolated bigram's figures on each text, by the names of a start's.

    Its mixture is fitted on every tenth piece with the pairs of the others, and then all are
    counted, a text as often as an epoch of the first half reads it. Without a measured text nothing
    is counted.

    Args:
        measured: Streams of rows by the name of a text, each of shape ``(tokens,)``.
    """
    if not measured:
        return {}
    pieces = [piece.numpy() for piece in (*corpus.pieces, *corpus.early)]
    others = [piece for place, piece in enumerate(pieces) if place % _FITTED_PIECE]
    # A text of one piece has no other to be fitted on.
    bigram = InterpolatedBigram(others or pieces, pieces[::_FITTED_PIECE], vocabulary_size)
    bigram.count(pieces)
    return {
        f"{name}.{figure}": value
        for name, streams in measured.items()
        for figure, value in bigram.score([own.numpy() for own in streams])
        .figures(of_words=True)
        .items()
    }
