"""Name one person's tensors as a graph takes them. No onnx: a device does this too."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from export.faces.family import not_exportable
from export.faces.gru_weights import as_weights
from export.faces.words import PERSONAL
from models.settings.image import VitSettings
from models.settings.model import GruLmSettings, ModelSettings, TransformerLmSettings
from models.settings.voice import TransformerTtsSettings


def personal_inputs(
    settings: ModelSettings, tensors: Mapping[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Return a person's tensors by the names of the graphs' inputs.

    Raise ExportError if the family cannot be exported.
    """
    match settings:
        case GruLmSettings():
            tensors = as_weights(tensors)
        case TransformerLmSettings() | VitSettings() | TransformerTtsSettings():
            pass
        case _:
            raise not_exportable(settings)
    return {PERSONAL + name: tensor for name, tensor in tensors.items()}
