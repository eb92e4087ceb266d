"""Write the three ONNX graphs of a voice (`export.faces.speech`).

The settings decide the graphs, so a voice that grew is written as the stage it is in. Weights are
the network's own (``models.networks.voice``), which hold the runtime's scale already
(`models.layers.he_scaling`).
"""

from collections.abc import Collection, Mapping

import onnx

from export.faces.family import Precision
from export.faces.speech import (
    DECODER_FILE,
    ENCODER_FILE,
    POSTNET_FILE,
    VOICE_FILES,
    file_of,
)
from export.graphs.named_weights import NamedWeights
from export.graphs.speech.decoder import write_decoder, write_postnet
from export.graphs.speech.encoder import write_encoder
from export.graphs.writer import Array, GraphWriter, check_tensors
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema


class SpeechGraphs:
    """The graphs of one voice."""

    def __init__(self, settings: TransformerTtsSettings) -> None:
        self._settings = settings
        self._shapes = {spec.name: spec.shape for spec in settings.schema().tensors}

    def build(
        self,
        tensors: Mapping[str, Array],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> dict[str, onnx.ModelProto]:
        """Return the checked graphs by file name. Only the mel pre-net's dropout is left.

        Convolutions stay float32 under every precision. Raise ExportError if a tensor is missing,
        foreign or of another shape.
        """
        held = {name: shape for name, shape in self._shapes.items() if name not in personal}
        check_tensors(tensors, held)
        made = {}
        for file, write in (
            (ENCODER_FILE, write_encoder),
            (DECODER_FILE, write_decoder),
            (POSTNET_FILE, write_postnet),
        ):
            shapes = {name: self._shapes[name] for name in self._shapes if file_of(name) == file}
            writer = GraphWriter(
                shapes, personal=[name for name in shapes if name in personal], precision=precision
            )
            write(writer, self._settings)
            own = {name: tensors[name] for name in shapes if name not in personal}
            made[file] = writer.model(f"transformer_tts_{file.partition('.')[0]}", own)
        return made

    def recover(
        self, models: Mapping[str, onnx.ModelProto], *, personal: Collection[str] = ()
    ) -> dict[str, Array]:
        """Return the graphs' parameters; ExportError if one is missing or of another shape."""
        tensors = self._settings.schema().tensors
        return {
            name: tensor
            for file in VOICE_FILES
            for name, tensor in NamedWeights(
                Schema(tuple(spec for spec in tensors if file_of(spec.name) == file))
            )
            .recover(models[file], personal=personal)
            .items()
        }
