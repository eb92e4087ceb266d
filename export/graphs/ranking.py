"""Write the outputs that every next-word graph has (`export.faces.words`)."""

import numpy as np

from export.faces.words import BATCH, DISTRIBUTION, LOG_PROBABILITIES, TOP_K, WORDS
from export.graphs.writer import GraphWriter


def write_ranking(writer: GraphWriter, logits: str, vocabulary_size: int) -> None:
    """Write all three outputs from ``logits``, the words' scores, shape ``(batch, vocab)``."""
    writer.input(TOP_K, [1], np.int64)
    writer.node("LogSoftmax", logits, named=DISTRIBUTION, axis=-1)
    writer.nodes("TopK", DISTRIBUTION, TOP_K, named=(LOG_PROBABILITIES, WORDS), axis=-1)
    writer.output(WORDS, [BATCH, "ranked"], np.int64)
    writer.output(LOG_PROBABILITIES, [BATCH, "ranked"])
    writer.output(DISTRIBUTION, [BATCH, vocabulary_size])
