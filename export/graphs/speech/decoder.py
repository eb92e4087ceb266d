"""Write the graph of one step of a voice, and that of its post-net (`export.faces.speech`).

Each block's keys and values are inputs and outputs of their own: packed into one they would be
copied three times a step. The network is ``models.networks.voice``.
"""

import onnx

from export.faces.speech import (
    FRAME,
    FRAMES,
    KEPT,
    KEYS,
    LOG_MELS,
    MASK,
    MEMORY_KEYS,
    MEMORY_VALUES,
    MIDDLES,
    PAST,
    STOP,
    TEXT,
    VALUES,
)
from export.faces.words import BATCH, NEXT
from export.graphs.speech.layers import (
    turned,
    write_convolution,
    write_feedforward,
    write_places,
    write_taken,
)
from export.graphs.writer import GraphWriter
from models.settings.voice import PLACE_DEVIATION_FRAMES, TransformerTtsSettings


def write_decoder(writer: GraphWriter, settings: TransformerTtsSettings) -> None:
    """Write one step."""
    writer.input(MASK, [BATCH, 1, 1, TEXT])
    for block in range(settings.layer_count):
        _declare(writer, settings, block)
    place = writer.extent(f"{KEYS}0", 2)
    mask = _seen(writer, settings, place) if settings.aligner_size else MASK
    values = write_places(
        writer,
        _unfed(writer, settings) if settings.aligner_size else _squeezed_frame(writer, settings),
        "decoder_position",
        place,
        writer.added(place, writer.integers(1)),
        longest=settings.longest_steps,
        width=settings.hidden_size,
    )
    for block in range(settings.layer_count):
        values = _attend_to_past(writer, settings, values, block)
        values = _attend_to_text(writer, settings, values, block, mask)
        values = write_feedforward(writer, values, f"decoder.{block}")
    _write_head(writer, settings, writer.norm(values, "decoder_norm"))


def write_postnet(writer: GraphWriter, settings: TransformerTtsSettings) -> None:
    """Write what corrects all frames at the end, and turns them back into logarithms."""
    mels, last = settings.mel.mel_count, settings.postnet_layer_count - 1
    writer.input(FRAMES, [BATCH, "frames", mels])
    values = turned(writer, FRAMES)
    for place in range(settings.postnet_layer_count):
        values = write_convolution(
            writer,
            settings,
            values,
            f"postnet.convolutions.{place}",
            is_normed=place < last,
            activation="Tanh" if place < last else None,
        )
    whole = writer.added(FRAMES, turned(writer, values))
    scaled = writer.node("Mul", whole, writer.number(settings.mel_std))
    writer.node("Add", scaled, writer.number(settings.mel_mean), named=LOG_MELS)
    writer.output(LOG_MELS, [BATCH, "frames", mels])


def _declare(writer: GraphWriter, settings: TransformerTtsSettings, block: int) -> None:
    """Declare what a block looks at, and what it leaves to the next step."""
    heads, size = settings.head_count, settings.hidden_size // settings.head_count
    writer.input(f"{MEMORY_KEYS}{block}", [BATCH, heads, size, TEXT])
    writer.input(f"{MEMORY_VALUES}{block}", [BATCH, heads, TEXT, size])
    for name in (KEYS, VALUES):
        writer.input(f"{name}{block}", [BATCH, heads, PAST, size])
        writer.output(f"{NEXT}{name}{block}", [BATCH, heads, "so_far", size])


def _seen(writer: GraphWriter, settings: TransformerTtsSettings, place: str) -> str:
    """Return what is added to scores: the mask, and attention drawn to the characters' middles.

    ``place`` is the step's, a list of one; see ``models.layers.speech_alignment``.
    """
    writer.input(MIDDLES, [BATCH, TEXT])
    step = writer.added(writer.node("Cast", place, to=onnx.TensorProto.FLOAT), writer.number(0.5))
    time = writer.node("Mul", step, writer.number(settings.reduction_factor))
    apart = writer.node("Sub", time, MIDDLES)
    scale = writer.number(-1 / (2 * PLACE_DEVIATION_FRAMES**2))
    scores = writer.node("Mul", writer.node("Mul", apart, apart), scale)
    return writer.added(MASK, writer.node("Unsqueeze", scores, writer.integers(1, 2)))


def _unfed(writer: GraphWriter, settings: TransformerTtsSettings) -> str:
    """Return zeros, shape ``(batch, 1, hidden)``: a voice with an aligner is fed no frame."""
    clips = writer.extent(f"{KEYS}0", 0)
    shape = writer.node("Concat", clips, writer.integers(1, settings.hidden_size), axis=0)
    return writer.node("Expand", writer.number(0.0), shape)


def _squeezed_frame(writer: GraphWriter, settings: TransformerTtsSettings) -> str:
    """Return what the mel pre-net makes of the last frame, shape ``(batch, 1, hidden)``."""
    writer.input(FRAME, [BATCH, settings.mel.mel_count])
    writer.input(KEPT, [2, BATCH, settings.mel_prenet_size])
    values = FRAME
    kept = writer.nodes("Split", KEPT, named=2, axis=0, num_outputs=2)
    for layer, multiplier in zip(("first", "second"), kept, strict=True):
        bent = writer.node("Relu", writer.linear(values, f"mel_prenet.{layer}"))
        factor = writer.node("Squeeze", multiplier, writer.integers(0))
        values = writer.node("Mul", bent, factor)
    squeezed = writer.linear(values, "mel_prenet.projection")
    return writer.node("Unsqueeze", squeezed, writer.integers(1))


def _attend_to_past(
    writer: GraphWriter, settings: TransformerTtsSettings, values: str, block: int
) -> str:
    """Return the stream after self-attention; leave keys and values so far to the next step."""
    name = f"decoder.{block}"
    projected = writer.linear(
        writer.norm(values, f"{name}.attention_norm"), f"{name}.attention.to_qkv"
    )
    parts = writer.nodes("Split", projected, named=3, axis=2, num_outputs=3)
    query, key, held = (_one_place(writer, settings, part) for part in parts)
    key_place, value_place = f"{KEYS}{block}", f"{VALUES}{block}"
    keys = writer.node("Concat", key_place, key, axis=2, named=NEXT + key_place)
    values_held = writer.node("Concat", value_place, held, axis=2, named=NEXT + value_place)
    by_column = writer.node("Transpose", keys, perm=[0, 1, 3, 2])
    taken = write_taken(writer, settings, query, by_column, values_held)
    return _added(writer, settings, values, taken, f"{name}.attention.to_out")


def _attend_to_text(
    writer: GraphWriter, settings: TransformerTtsSettings, values: str, block: int, mask: str
) -> str:
    """Return the stream after attention to the text, ``mask`` added to its scores."""
    across = f"decoder.{block}.cross_attention"
    asked = writer.linear(writer.norm(values, f"{across}_norm"), f"{across}.to_q")
    taken = write_taken(
        writer,
        settings,
        _one_place(writer, settings, asked),
        f"{MEMORY_KEYS}{block}",
        f"{MEMORY_VALUES}{block}",
        mask=mask,
    )
    return _added(writer, settings, values, taken, f"{across}.to_out")


def _one_place(writer: GraphWriter, settings: TransformerTtsSettings, values: str) -> str:
    """Return ``(batch, heads, 1, head size)`` of ``(batch, 1, hidden)``."""
    heads = settings.head_count
    return writer.reshaped(values, 0, heads, 1, settings.hidden_size // heads)


def _added(
    writer: GraphWriter, settings: TransformerTtsSettings, values: str, taken: str, layer: str
) -> str:
    """Return the stream with what the heads took, through a linear layer."""
    side_by_side = writer.reshaped(taken, 0, 1, settings.hidden_size)
    return writer.added(values, writer.linear(side_by_side, layer))


def _write_head(writer: GraphWriter, settings: TransformerTtsSettings, values: str) -> None:
    mels = settings.mel.mel_count
    shape = writer.integers(0, settings.reduction_factor, mels)
    writer.node("Reshape", writer.linear(values, "head.mel"), shape, named=FRAMES)
    writer.output(FRAMES, [BATCH, settings.reduction_factor, mels])
    logit = writer.linear(values, "head.stop")
    writer.node("Squeeze", logit, writer.integers(1, 2), named=STOP)
    writer.output(STOP, [BATCH])
