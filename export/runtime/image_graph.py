"""Run an exported image classifier (`export.faces.images`): onnxruntime and numpy, no torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.faces.images import PIXELS
from export.faces.words import LOG_PROBABILITIES
from export.runtime.word_graph import GraphError, PersonalGraph, run_session


class ImageGraph(PersonalGraph):
    """One loaded classifier; safe to share between threads.

    ``image_shape``: height, width and channels of an image.
    """

    def __init__(self, graph: bytes, *, thread_count: int = 1) -> None:
        """Load the graph; GraphError if onnxruntime is missing, or the bytes are no such graph."""
        super().__init__(graph, thread_count)
        inputs, outputs = self._taken, self._given
        if PIXELS not in inputs or set(outputs) != {LOG_PROBABILITIES}:
            raise GraphError(
                f"a classifier's graph must take {PIXELS} and give {LOG_PROBABILITIES}, "
                f"got {sorted(inputs)} and {sorted(outputs)}"
            )
        self.image_shape: tuple[int, ...] = inputs[PIXELS][1:]
        self.class_count = int(outputs[LOG_PROBABILITIES][1])

    def classify(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return log-probabilities of every class in nats, float32, shape ``(batch, classes)``.

        ``pixels``: at least one image, uint8, shape ``(batch, *image_shape)``.

        Raises:
            ValueError: If shape or dtype is another.
            GraphError: If onnxruntime fails, or the graph needs a person's tensors and has none.
        """
        if pixels.ndim != 4 or pixels.shape[1:] != self.image_shape or not len(pixels):
            raise ValueError(
                f"pixels must have shape (batch, {', '.join(map(str, self.image_shape))}), "
                f"got {pixels.shape}"
            )
        if pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8, got {pixels.dtype}")
        # Any: bytes and floats.
        feeds: dict[str, NDArray[Any]] = {PIXELS: pixels, **self.personal_inputs}
        found: NDArray[np.float32] = run_session(self._session, [LOG_PROBABILITIES], feeds)[0]
        return found
