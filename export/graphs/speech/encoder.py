"""Write the graph that reads a text once for all steps of a voice (``models.networks.voice``)."""

import math

import numpy as np
import onnx

from export.faces.speech import CHARACTERS, MASK, MEMORY_KEYS, MEMORY_VALUES, MIDDLES, TEXT
from export.faces.words import BATCH
from export.graphs.speech.layers import (
    turned,
    write_convolution,
    write_feedforward,
    write_places,
    write_taken,
)
from export.graphs.writer import GraphWriter
from models.settings.voice import (
    MOST_LOG,
    PRENET_CONVOLUTIONS,
    TYPICAL_FRAMES,
    TransformerTtsSettings,
)


def write_encoder(writer: GraphWriter, settings: TransformerTtsSettings) -> None:
    """Write what reads a text."""
    writer.input(CHARACTERS, [BATCH, TEXT], np.int64)
    is_text = writer.node("Greater", CHARACTERS, writer.integer(0))
    added = writer.node("Where", is_text, writer.number(0.0), writer.number(-math.inf))
    writer.node("Unsqueeze", added, writer.integers(1, 2), named=MASK)
    writer.output(MASK, [BATCH, 1, 1, TEXT])
    values = _read_characters(writer, settings, is_text)
    if settings.speaker_size:
        vector = writer.reshaped(writer.weight("speaker.vector"), 1, -1)
        values = writer.added(values, writer.linear(vector, "speaker.projection"))
    values = write_places(
        writer,
        values,
        "encoder_position",
        writer.integers(0),
        writer.extent(CHARACTERS, 1),
        longest=settings.longest_text,
        width=settings.hidden_size,
    )
    for block in range(settings.layer_count):
        values = _attend_to_text(writer, settings, values, f"encoder.{block}")
        values = write_feedforward(writer, values, f"encoder.{block}")
    values = writer.norm(values, "encoder_norm")
    if settings.aligner_size:
        _write_middles(writer, values, is_text)
    _write_memory(writer, settings, values)


def _read_characters(writer: GraphWriter, settings: TransformerTtsSettings, is_text: str) -> str:
    """Return what the encoder reads of each character, shape ``(batch, text, hidden)``."""
    present = writer.node("Cast", is_text, to=onnx.TensorProto.FLOAT)
    by_channel = writer.node("Unsqueeze", present, writer.integers(1))
    embedded = writer.embedded("text_prenet.embedding.weight", CHARACTERS)
    values = writer.node("Mul", turned(writer, embedded), by_channel)
    for place in range(PRENET_CONVOLUTIONS):
        name = f"text_prenet.convolutions.{place}"
        made = write_convolution(writer, settings, values, name, activation="Relu")
        values = writer.node("Mul", made, by_channel)
    return writer.linear(turned(writer, values), "text_prenet.projection")


def _attend_to_text(
    writer: GraphWriter, settings: TransformerTtsSettings, values: str, block: str
) -> str:
    """Return the stream after a block's self-attention."""
    heads, width = settings.head_count, settings.hidden_size
    normed = writer.norm(values, f"{block}.attention_norm")
    projected = writer.linear(normed, f"{block}.attention.to_qkv")
    query, key, held = (
        _by_head(writer, part, heads, width)
        for part in writer.nodes("Split", projected, named=3, axis=2, num_outputs=3)
    )
    keys = writer.node("Transpose", key, perm=[0, 1, 3, 2])
    taken = write_taken(writer, settings, query, keys, held, mask=MASK)
    side_by_side = writer.reshaped(writer.node("Transpose", taken, perm=[0, 2, 1, 3]), 0, 0, width)
    return writer.added(values, writer.linear(side_by_side, f"{block}.attention.to_out"))


def _write_middles(writer: GraphWriter, values: str, is_text: str) -> None:
    """Write the middle of each character, in frames (`models.layers.speech_alignment`)."""
    logs = writer.node("Squeeze", writer.linear(values, "durations.projection"), writer.integers(2))
    bounds = (writer.number(-MOST_LOG), writer.number(MOST_LOG))
    frames = writer.node("Exp", writer.node("Clip", logs, *bounds))
    lasting = writer.node("Mul", frames, writer.number(TYPICAL_FRAMES))
    present = writer.node("Cast", is_text, to=onnx.TensorProto.FLOAT)
    durations = writer.node("Mul", lasting, present)
    ends = writer.node("CumSum", durations, writer.integer(1))
    half = writer.node("Mul", durations, writer.number(0.5))
    writer.node("Sub", ends, half, named=MIDDLES)
    writer.output(MIDDLES, [BATCH, TEXT])


def _write_memory(writer: GraphWriter, settings: TransformerTtsSettings, values: str) -> None:
    """Write keys and values of the text for every block of the decoder."""
    heads, width = settings.head_count, settings.hidden_size
    for block in range(settings.layer_count):
        across = f"decoder.{block}.cross_attention"
        keys = _by_head(writer, writer.linear(values, f"{across}.to_k"), heads, width)
        writer.node("Transpose", keys, perm=[0, 1, 3, 2], named=f"{MEMORY_KEYS}{block}")
        held = writer.reshaped(writer.linear(values, f"{across}.to_v"), 0, 0, heads, width // heads)
        writer.node("Transpose", held, perm=[0, 2, 1, 3], named=f"{MEMORY_VALUES}{block}")
        writer.output(f"{MEMORY_KEYS}{block}", [BATCH, heads, width // heads, TEXT])
        writer.output(f"{MEMORY_VALUES}{block}", [BATCH, heads, TEXT, width // heads])


def _by_head(writer: GraphWriter, values: str, heads: int, width: int) -> str:
    """Return ``(batch, heads, time, head size)`` of ``(batch, time, hidden)``."""
    return writer.node(
        "Transpose", writer.reshaped(values, 0, 0, heads, width // heads), perm=[0, 2, 1, 3]
    )
