"""Find the writer of a model's graph by the model's settings, and parse graphs.

A new family is one class as in `export.faces.family` and one line in ``exporter_for``.
"""

from typing import TYPE_CHECKING

from export.faces.family import Exporter, ExportError, missing, not_exportable
from models.settings.image import VitSettings
from models.settings.model import GruLmSettings, ModelSettings, TransformerLmSettings

if TYPE_CHECKING:
    import onnx


def exporter_for(settings: ModelSettings) -> Exporter:
    """Return the exporter of a model; ExportError if there is none or its packages are missing."""
    try:
        match settings:
            case GruLmSettings():
                from export.graphs.gru import GruGraph

                return GruGraph(settings)
            case TransformerLmSettings():
                from export.graphs.transformer import TransformerGraph

                return TransformerGraph(settings)
            case VitSettings():
                from export.graphs.vit import VitGraph

                return VitGraph(settings)
    except ImportError as error:
        raise missing(error) from None
    raise not_exportable(settings)


def parse_graph(encoded: bytes) -> "onnx.ModelProto":
    """Return the graph in ONNX bytes; ExportError if they are none, or onnx is missing."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise missing(error) from None
    try:
        return onnx.load_model_from_string(encoded)
    except DecodeError:
        raise ExportError("the graph must be ONNX, but cannot be parsed") from None
