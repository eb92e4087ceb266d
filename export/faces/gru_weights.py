"""A GRU's parameters as ONNX's operator takes them: gates in ONNX's order, biases joined.

numpy alone, since a device without onnx orders a person's GRU, too (`export.graphs.gru`).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

MADE_OF: Mapping[str, tuple[str, ...]] = {
    "gru.W": ("gru.weight_ih_l0",),
    "gru.R": ("gru.weight_hh_l0",),
    "gru.B": ("gru.bias_ih_l0", "gru.bias_hh_l0"),
}
"""Which of torch's tensors each of the operator's is made of."""

_TORCH_TO_ONNX = (1, 0, 2)  # torch stacks gates r, z, n; ONNX z, r, h. Its own inverse.


def as_weights(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return tensors by state-dict name as the graph holds them, its gates in ONNX's order."""
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith("gru.")}
    for name, parts in MADE_OF.items():
        if tensors.keys() >= set(parts):
            gates = [reorder_gates(tensors[part]) for part in parts]
            weights[name] = np.concatenate(gates)[np.newaxis]
    return weights


def reorder_gates(stacked: Array) -> Array:
    """Exchange torch's order of the gates for ONNX's, or back; axis 0 has extent 3 * hidden."""
    gates = stacked.reshape(3, -1, *stacked.shape[1:])[list(_TORCH_TO_ONNX)]
    return gates.reshape(stacked.shape)
