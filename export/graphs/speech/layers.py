"""Write what the graphs of a voice share: places of a sequence, convolutions, feed-forward layers.

The network's are ``models.layers.positions``, ``speech_convolutions`` and
``models.networks.voice_blocks``.
"""

import math
from typing import Literal

import numpy as np

from export.graphs.writer import Array, GraphWriter
from models.settings.voice import KERNEL_SIZE, TransformerTtsSettings

_LONGEST_WAVE = 10_000.0


def sinusoids(length: int, width: int) -> Array:
    """Return a table of places from 0, shape ``(length, width)``, ``width`` even.

    Even columns are sines, odd ones cosines of the same angle.
    """
    angles = np.arange(length)[:, np.newaxis] / _LONGEST_WAVE ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(length, width).astype("f4")


def write_places(
    writer: GraphWriter, values: str, name: str, first: str, end: str, *, longest: int, width: int
) -> str:
    """Add learnt multiples of sinusoids to a sequence, shape ``(batch, time, hidden)``.

    Args:
        name: The layer, which has one number, ``scale``.
        first: Place of the first of them, a list of one.
        end: Place after the last one, a list of one.
    """
    table = writer.table(f"{name}.table", sinusoids(longest, width))
    rows = writer.node("Slice", table, first, end, writer.integers(0))
    return writer.added(values, writer.node("Mul", writer.weight(f"{name}.scale"), rows))


def write_convolution(
    writer: GraphWriter,
    settings: TransformerTtsSettings,
    values: str,
    name: str,
    *,
    is_normed: bool = True,
    activation: Literal["Relu", "Tanh"] | None,
) -> str:
    """Convolve over time, norm and bend: a value of shape ``(batch, channels, time)``."""
    convolution = f"{name}.convolution"
    weight, bias = writer.weight(f"{convolution}.weight"), writer.weight(f"{convolution}.bias")
    half = KERNEL_SIZE // 2
    values = writer.node("Conv", values, weight, bias, pads=[half, half])
    if is_normed and settings.norm == "batch":
        entries = ("weight", "bias", "running_mean", "running_var")
        norm = [writer.weight(f"{name}.batch_norm.{entry}") for entry in entries]
        values = writer.node("BatchNormalization", values, *norm)
    elif is_normed:
        normed = writer.norm(turned(writer, values), f"{name}.layer_norm")
        values = turned(writer, normed)
    return values if activation is None else writer.node(activation, values)


def write_feedforward(writer: GraphWriter, values: str, block: str) -> str:
    """Return the stream after a block's feed-forward network."""
    normed = writer.norm(values, f"{block}.feedforward_norm")
    hidden = writer.node("Relu", writer.linear(normed, f"{block}.feedforward.to_hidden"))
    return writer.added(values, writer.linear(hidden, f"{block}.feedforward.to_out"))


def write_taken(
    writer: GraphWriter,
    settings: TransformerTtsSettings,
    query: str,
    keys: str,
    held: str,
    *,
    mask: str | None = None,
) -> str:
    """Return what each head takes, shape ``(batch, heads, time, head size)``.

    Args:
        query: Shape ``(batch, heads, time, head size)``.
        keys: Shape ``(batch, heads, head size, memory)``.
        held: Values, shape ``(batch, heads, memory, head size)``.
        mask: Added to the scores; None if all may be looked at.
    """
    size = settings.hidden_size // settings.head_count
    scaled = writer.node("Mul", query, writer.number(1 / math.sqrt(size)))
    scores = writer.node("MatMul", scaled, keys)
    if mask is not None:
        scores = writer.added(scores, mask)
    return writer.node("MatMul", writer.node("Softmax", scores, axis=-1), held)


def turned(writer: GraphWriter, values: str) -> str:
    """Return ``(batch, channels, time)`` of ``(batch, time, channels)``, or the other way."""
    return writer.node("Transpose", values, perm=[0, 2, 1])
