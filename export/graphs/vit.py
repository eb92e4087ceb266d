"""Write the ONNX graph of the Vision Transformer (``models.networks.vit``, `faces.images`)."""

import math
from collections.abc import Collection, Mapping

import numpy as np
import onnx

from export.faces.family import Precision
from export.faces.images import PIXELS
from export.faces.words import BATCH, LOG_PROBABILITIES
from export.graphs.named_weights import NamedWeights
from export.graphs.writer import Array, GraphWriter
from models.settings.image import VitSettings

LARGEST_PIXEL = 255


class VitGraph(NamedWeights):
    """The graph of one Vision Transformer."""

    def __init__(self, settings: VitSettings) -> None:
        super().__init__(settings.schema())
        self._settings = settings

    def build(
        self,
        tensors: Mapping[str, Array],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> onnx.ModelProto:
        """Return the checked graph without dropout; ExportError if a tensor is misshapen."""
        settings = self._settings
        size, channels = settings.image_size, settings.channel_count
        writer = GraphWriter(self._shapes, personal=personal, precision=precision)
        writer.input(PIXELS, [BATCH, size, size, channels], np.uint8)
        values = self._tokens(writer)
        for block in range(settings.layer_count):
            values = self._block(writer, values, f"blocks.{block}")
        token = writer.node("Gather", values, writer.integer(0), axis=1)
        logits = writer.scores(writer.norm(token, "norm"), "head.weight", "head.bias")
        writer.node("LogSoftmax", logits, named=LOG_PROBABILITIES, axis=-1)
        writer.output(LOG_PROBABILITIES, [BATCH, settings.class_count])
        return writer.model("vit", tensors)

    def _tokens(self, writer: GraphWriter) -> str:
        """Return what the first block reads, shape ``(batch, tokens, width)``."""
        settings = self._settings
        side, rows = settings.patch_size, settings.image_size // settings.patch_size
        channels, width = settings.channel_count, settings.model_size
        mean = writer.table("pixel_mean", np.array(settings.pixel_mean, dtype=np.float32))
        std = writer.table("pixel_std", np.array(settings.pixel_std, dtype=np.float32))
        scaled = writer.node(
            "Div",
            writer.node("Cast", PIXELS, to=onnx.TensorProto.FLOAT),
            writer.number(float(LARGEST_PIXEL)),
        )
        normed = writer.node("Div", writer.node("Sub", scaled, mean), std)
        # A patch is flattened by rows, columns, then channels, as the pixels lie.
        cut = writer.node(
            "Transpose",
            writer.reshaped(normed, -1, rows, side, rows, side, channels),
            perm=[0, 1, 3, 2, 4, 5],
        )
        flat = writer.reshaped(cut, 0, rows * rows, side * side * channels)
        patches = writer.linear(flat, "patches")
        batch = writer.extent(PIXELS, 0)
        shape = writer.node("Concat", batch, writer.integers(1, width), axis=0)
        token = writer.node("Expand", writer.weight("class_token"), shape)
        joined = writer.node("Concat", token, patches, axis=1)
        return writer.added(joined, writer.weight("position.weight"))

    def _block(self, writer: GraphWriter, values: str, name: str) -> str:
        normed = writer.norm(values, f"{name}.attention_norm")
        values = writer.added(values, self._attention(writer, normed, f"{name}.attention"))
        normed = writer.norm(values, f"{name}.feedforward_norm")
        hidden = writer.node("Gelu", writer.linear(normed, f"{name}.feedforward.to_hidden"))
        return writer.added(values, writer.linear(hidden, f"{name}.feedforward.to_out"))

    def _attention(self, writer: GraphWriter, values: str, name: str) -> str:
        heads, size = self._settings.head_count, self._settings.head_size
        projected = writer.reshaped(writer.linear(values, f"{name}.to_qkv"), 0, 0, 3, heads, size)
        by_head = writer.node("Transpose", projected, perm=[2, 0, 3, 1, 4])
        query, key, value = (
            writer.node("Squeeze", part, writer.integers(0))
            for part in writer.nodes("Split", by_head, named=3, axis=0, num_outputs=3)
        )
        scaled = writer.node("Mul", query, writer.number(1 / math.sqrt(size)))
        scores = writer.node("MatMul", scaled, writer.node("Transpose", key, perm=[0, 1, 3, 2]))
        taken = writer.node("MatMul", writer.node("Softmax", scores, axis=-1), value)
        side_by_side = writer.node("Transpose", taken, perm=[0, 2, 1, 3])
        return writer.linear(writer.reshaped(side_by_side, 0, 0, heads * size), f"{name}.to_out")
