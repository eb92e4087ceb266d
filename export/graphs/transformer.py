"""Write the ONNX graph of the Transformer language model, its keys and values carried in a cache.

Parity compares it with ``models.networks.transformer_lm`` ([Vaswani], arXiv:1706.03762).
"""

import math
from collections.abc import Collection, Mapping

import numpy as np
import onnx

from export.faces.family import Precision
from export.faces.words import BATCH, CACHE, CONTEXT_SIZE, NEXT, TIME, TOKENS
from export.graphs.named_weights import NamedWeights
from export.graphs.ranking import write_ranking
from export.graphs.writer import Array, GraphWriter
from models.settings.model import TransformerLmSettings, schema_of

_FROM_NOTHING = -math.inf


class TransformerGraph(NamedWeights):
    """The graph of one Transformer language model."""

    def __init__(self, settings: TransformerLmSettings) -> None:
        super().__init__(schema_of(settings))
        self._settings = settings

    def build(
        self,
        tensors: Mapping[str, Array],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> onnx.ModelProto:
        """Return the checked graph (``export.faces.words``); dropout is off.

        Its state is ``cache``, float32, shape ``(2 * layers, batch, heads, past, head size)``: keys
        and values of the first block, then of the next. Raise ExportError if a tensor is missing,
        foreign or of another shape.
        """
        settings = self._settings
        writer = GraphWriter(self._shapes, personal=personal, precision=precision)
        writer.input(TOKENS, [BATCH, TIME], np.int64)
        cached = self._declare_cache(writer)
        places = _places(writer)
        values = writer.added(
            writer.embedded("embedding.weight", TOKENS),
            # Not rounded: the table is small.
            writer.node("Gather", writer.weight("position.weight"), places),
        )
        mask = _mask(writer, places)
        kept: list[str] = []
        for block, past in enumerate(zip(cached[::2], cached[1::2], strict=True)):
            values, *new = self._block(writer, values, f"blocks.{block}", past, mask)
            kept += new
        writer.node("Concat", *kept, named=NEXT + CACHE, axis=0)
        last = writer.norm(writer.node("Gather", values, writer.integer(-1), axis=1), "norm")
        output = "embedding.weight" if settings.tied else "output.weight"
        write_ranking(writer, writer.scores(last, output, "output.bias"), settings.vocabulary_size)
        return writer.model("transformer_lm", tensors, **{CONTEXT_SIZE: str(settings.context_size)})

    def _declare_cache(self, writer: GraphWriter) -> list[str]:
        """Declare the cache and what follows it; return each block's keys and values."""
        settings = self._settings
        heads, width = settings.head_count, settings.model_size // settings.head_count
        count = 2 * settings.layer_count
        writer.input(CACHE, [count, BATCH, heads, "past", width])
        writer.output(NEXT + CACHE, [count, BATCH, heads, "read", width])
        return writer.nodes("Split", CACHE, named=count, axis=0, num_outputs=count)

    def _block(
        self, writer: GraphWriter, values: str, name: str, past: tuple[str, str], mask: str
    ) -> tuple[str, str, str]:
        """Return the stream after the block, and its keys and values so far."""
        normed = writer.norm(values, f"{name}.attention_norm")
        attended, keys, held = self._attention(writer, normed, f"{name}.attention", past, mask)
        values = writer.added(values, attended)
        normed = writer.norm(values, f"{name}.feedforward_norm")
        hidden = writer.node("Gelu", writer.linear(normed, f"{name}.feedforward.0"))
        return writer.added(values, writer.linear(hidden, f"{name}.feedforward.2")), keys, held

    def _attention(
        self, writer: GraphWriter, values: str, name: str, past: tuple[str, str], mask: str
    ) -> tuple[str, str, str]:
        """Return what each position takes, and keys and values with those of the past before."""
        heads, width = self._settings.head_count, self._settings.model_size
        projected = writer.linear(values, f"{name}.to_qkv")
        by_head = writer.node(
            "Transpose",
            writer.reshaped(projected, 0, 0, 3, heads, width // heads),
            perm=[2, 0, 3, 1, 4],
        )
        query, key, value = writer.nodes("Split", by_head, named=3, axis=0, num_outputs=3)
        keys = writer.node("Concat", past[0], key, axis=3)
        held = writer.node("Concat", past[1], value, axis=3)
        scaled = writer.node("Mul", query, writer.number(1 / math.sqrt(width // heads)))
        scores = writer.node("MatMul", scaled, writer.node("Transpose", keys, perm=[0, 1, 2, 4, 3]))
        weights = writer.node("Softmax", writer.added(scores, mask), axis=-1)
        taken = writer.node("Squeeze", writer.node("MatMul", weights, held), writer.integers(0))
        side_by_side = writer.reshaped(
            writer.node("Transpose", taken, perm=[0, 2, 1, 3]), 0, 0, width
        )
        return writer.linear(side_by_side, f"{name}.to_out"), keys, held


def _places(writer: GraphWriter) -> str:
    """Return the places of the tokens: they follow those in the cache."""
    past = writer.node("Squeeze", writer.extent(CACHE, 3))
    time = writer.node("Squeeze", writer.extent(TOKENS, 1))
    return writer.node("Range", past, writer.added(past, time), writer.integer(1))


def _mask(writer: GraphWriter, places: str) -> str:
    """Return what is added to a score: nothing, or minus infinity where a key comes later."""
    after_last = writer.added(
        writer.node("Squeeze", writer.extent(CACHE, 3)),
        writer.node("Squeeze", writer.extent(TOKENS, 1)),
    )
    keys = writer.node("Range", writer.integer(0), after_last, writer.integer(1))
    is_seen = writer.node("LessOrEqual", keys, writer.node("Unsqueeze", places, writer.integers(1)))
    return writer.node("Where", is_seen, writer.number(0.0), writer.number(_FROM_NOTHING))
