"""The interface that exports a model family; `export.graphs.registry` finds its implementation."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from models.settings.model import ModelSettings

if TYPE_CHECKING:
    import onnx


Precision = Literal["float32", "int8"]
"""How a graph stores and multiplies matrices."""


class ExportError(ValueError):
    """Raised when a model cannot be exported or a graph cannot be read; the text says why."""


class Exporter(Protocol):
    """An exporter that turns the parameters of one model into an ONNX graph and back."""

    def build(
        self,
        tensors: Mapping[str, NDArray[np.float32]],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> "onnx.ModelProto":
        """Return the graph, with the inputs and outputs of ``export.faces.words`` or ``images``.

        Args:
            tensors: Parameters that are not personal, by state-dict name, in the schema's shapes.
            personal: Names of the others, which become inputs of the graph.
            precision: How matrices are stored and multiplied; personal tensors stay float32.

        Raises:
            ExportError: If the tensors are not the model's.
        """

    def recover(
        self, model: "onnx.ModelProto", *, personal: Collection[str] = ()
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return what a graph of ``build`` computes with, exactly; ExportError if it is none."""


def not_exportable(settings: ModelSettings) -> ExportError:
    """Return the error of a family that cannot be exported."""
    family = settings.__struct_config__.tag
    return ExportError(
        f"model family must be gru_lm, transformer_lm or vit to be exported, got {family}"
    )


def missing(error: ImportError) -> ExportError:
    """Return the error of a package that is not installed."""
    return ExportError(f"{error.name} is missing; install sotto[export]")
