"""Run an exported image classifier: onnxruntime and numpy, no torch.

Input ``pixels``: images as bytes, uint8, shape ``(batch, height, width, channels)``, ``batch``
free; the graph normalises them itself. ``personal.<name>``: a person's own tensors, as
`export.faces.words` says. Output ``log_probabilities``: of every class in nats, float32, shape
``(batch, classes)``.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.faces.words import LOG_PROBABILITIES, PERSONAL
from export.runtime.word_graph import (
    GraphError,
    PersonalInputs,
    check_personal,
    load_session,
    no_person,
    run_session,
)

PIXELS = "pixels"


class ImageGraph:
    """Hold one loaded classifier; safe to share between threads.

    Attributes:
        image_shape: Height, width and channels of an image.
        class_count: Classes it tells apart.
        personal_shapes: Shape of each tensor that is a person's own, by input name.
    """

    def __init__(self, graph: bytes, *, thread_count: int = 1) -> None:
        """Load the graph.

        Args:
            graph: ONNX bytes.
            thread_count: Threads inside one call.

        Raises:
            GraphError: If onnxruntime is missing, or the bytes are no such graph.
        """
        self._session = load_session(graph, thread_count)
        inputs = {item.name: tuple(item.shape) for item in self._session.get_inputs()}
        outputs = {item.name: tuple(item.shape) for item in self._session.get_outputs()}
        if PIXELS not in inputs or set(outputs) != {LOG_PROBABILITIES}:
            raise GraphError(
                f"a classifier's graph must take {PIXELS} and give {LOG_PROBABILITIES}, "
                f"got {sorted(inputs)} and {sorted(outputs)}"
            )
        self.image_shape: tuple[int, ...] = inputs[PIXELS][1:]
        self.class_count = int(outputs[LOG_PROBABILITIES][1])
        self.personal_shapes: Mapping[str, tuple[int, ...]] = {
            name: shape for name, shape in inputs.items() if name.startswith(PERSONAL)
        }
        self._personal: PersonalInputs | None = None if self.personal_shapes else {}

    def for_person(self, personal: PersonalInputs) -> "ImageGraph":
        """Return this graph with one person's tensors; the session is shared, nothing is copied.

        Raises:
            GraphError: If a tensor is missing, foreign, or of another shape or dtype.
        """
        check_personal(personal, self.personal_shapes)
        own = copy.copy(self)
        own._personal = dict(personal)
        return own

    def classify(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return log-probabilities of every class in nats, float32, shape ``(batch, classes)``.

        Args:
            pixels: Images, uint8, shape ``(batch, *image_shape)``, at least one.

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
        if self._personal is None:
            raise no_person(self.personal_shapes)
        # Any: bytes and floats.
        feeds: dict[str, NDArray[Any]] = {PIXELS: pixels, **self._personal}
        found: NDArray[np.float32] = run_session(self._session, [LOG_PROBABILITIES], feeds)[0]
        return found
