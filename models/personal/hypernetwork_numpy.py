"""Make a client's tensors from its embedding with numpy alone, for serving.

The arithmetic is that of `models.personal.hypernetwork`, which trains; tests compare the two.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from models.settings.hypernetwork import HIDDEN_LAYER_COUNT, HypernetworkSettings

_Array = NDArray[np.float32]


def generate(
    phi: Mapping[str, _Array],
    settings: HypernetworkSettings,
    embedding: _Array,
    *,
    tensor_count: int,
) -> _Array:
    """Return a client's tensors, flat float32 in schema order, shape ``(generated elements,)``.

    ``phi`` holds the hypernetwork's tensors by name, in the shapes of ``hypernetwork_schema`` and
    as its layers use them (``Hypernetwork.used_phi``); the embedding is float32,
    ``(embedding_size,)``.
    """
    hidden = embedding
    for index in range(HIDDEN_LAYER_COUNT):
        hidden = np.maximum(_linear(phi, f"body.{2 * index}", hidden), 0)
    hidden = _linear(phi, f"body.{2 * HIDDEN_LAYER_COUNT}", hidden)
    make = _linear if settings.output == "literal" else _mixture
    return np.concatenate([make(phi, f"outputs.{index}", hidden) for index in range(tensor_count)])


def _linear(phi: Mapping[str, _Array], name: str, values: _Array) -> _Array:
    return phi[f"{name}.weight"] @ values + phi[f"{name}.bias"]


def _mixture(phi: Mapping[str, _Array], name: str, hidden: _Array) -> _Array:
    shares = _linear(phi, f"{name}.mixing", hidden)
    return shares @ phi[f"{name}.basis"] + phi[f"{name}.base"]
