"""Write the ONNX graph of the neural vocoder (`export.faces.speech`).

onnxruntime has no inverse short-time Fourier transform, so frames are made by two matrix products
and added up where they overlap. Cosines are even around the middle of a frame and sines are odd:
half of each is multiplied, and the other half is its mirror image.

Parity compares it with ``models.networks.vocoder`` and ``models.sound.inverse_transform``.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray

from export.faces.speech import CONTEXT_FRAMES, LOG_MELS, SOUND
from export.faces.words import BATCH
from export.graphs.named_weights import NamedWeights
from export.graphs.speech.layers import turned
from export.graphs.writer import Array, GraphWriter
from models.settings.vocoder import (
    KERNEL_SIZE,
    LARGEST_AMPLITUDE,
    MEL_CENTRE,
    NORM_EPSILON,
    SMALLEST_AMPLITUDE,
    VocoderSettings,
)
from models.sound.mel_filters import hann_window, mean_spread


class VocoderGraph(NamedWeights):
    """The graph of one vocoder."""

    def __init__(self, settings: VocoderSettings) -> None:
        super().__init__(settings.schema())
        self._settings = settings

    def build(self, tensors: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the checked graph; ExportError if a tensor is missing, foreign or misshapen."""
        settings = self._settings
        writer = GraphWriter(self._shapes)
        writer.input(LOG_MELS, [BATCH, "frames", settings.mel.mel_count])
        centred = writer.node("Sub", LOG_MELS, writer.number(MEL_CENTRE))
        values = writer.norm(
            _over_time(writer, centred, "embedding"), "embedding_norm", epsilon=NORM_EPSILON
        )
        for block in range(settings.block_count):
            values = self._block(writer, values, f"blocks.{block}")
        spectra = writer.linear(writer.norm(values, "norm", epsilon=NORM_EPSILON), "head")
        logs, phases = writer.nodes("Split", spectra, named=2, axis=2, num_outputs=2)
        bounded = _at_most(writer, writer.added(logs, self._spelt_out(writer)))
        amplitudes = writer.node("Exp", bounded)
        real, imaginary = (
            writer.node("Mul", amplitudes, writer.node(wave, phases)) for wave in ("Cos", "Sin")
        )
        self._write_sound(writer, self._frames(writer, real, imaginary))
        return writer.model("vocoder", tensors, **{CONTEXT_FRAMES: str(context_frames(settings))})

    def _block(self, writer: GraphWriter, values: str, name: str) -> str:
        seen = _over_time(writer, values, f"{name}.over_time", groups=self._settings.width)
        normed = writer.norm(seen, f"{name}.norm", epsilon=NORM_EPSILON)
        hidden = writer.node("Gelu", writer.linear(normed, f"{name}.widen"))
        mixed = writer.linear(hidden, f"{name}.narrow")
        return writer.added(values, writer.node("Mul", mixed, writer.weight(f"{name}.scale")))

    def _spelt_out(self, writer: GraphWriter) -> str:
        """Return logarithms of what the channels say of amplitudes, ``(batch, frames, bins)``."""
        channels = writer.node("Exp", _at_most(writer, LOG_MELS))
        table = writer.table("spread", mean_spread(self._settings.mel).astype(np.float32))
        spread = writer.node("MatMul", channels, table)
        return writer.node("Log", writer.node("Max", spread, writer.number(SMALLEST_AMPLITUDE)))

    def _frames(self, writer: GraphWriter, real: str, imaginary: str) -> str:
        """Return windowed frames of sound, shape ``(batch, frames, fft size)``."""
        half = self._settings.mel.fft_size // 2
        cosines, sines = half_waves(self._settings.mel.fft_size)
        even = writer.node("MatMul", real, writer.table("cosines", cosines.astype(np.float32)))
        odd = writer.node("MatMul", imaginary, writer.table("sines", sines.astype(np.float32)))
        axis = writer.integers(2)
        mirrored = writer.node(
            "Slice",
            writer.node("Sub", even, odd),
            writer.integers(half - 1),
            writer.integers(0),
            axis,
            writer.integers(-1),
        )
        whole = writer.node("Concat", writer.added(even, odd), mirrored, axis=2)
        return writer.node("Mul", whole, self._window(writer))

    def _window(self, writer: GraphWriter) -> str:
        mel = self._settings.mel
        return writer.table("window", hann_window(mel).astype(np.float32))

    def _write_sound(self, writer: GraphWriter, frames: str) -> None:
        """Add frames up, and divide by how much of all windows lies on each sample."""
        mel = self._settings.mel
        count = writer.extent(LOG_MELS, 1)
        window = self._window(writer)
        energy = writer.node(
            "Expand",
            writer.node("Mul", window, window),
            writer.node("Concat", writer.integers(1), count, writer.integers(1), axis=0),
        )
        first = writer.integers(mel.fft_size // 2)
        lasting = writer.node(
            "Mul", writer.node("Sub", count, writer.integers(1)), writer.integers(mel.hop_size)
        )
        end = writer.added(first, lasting)
        # Samples before the first and after the last frame's centre, where little overlaps, go.
        sound, weight = (
            writer.node("Slice", self._overlapped(writer, value), first, end, writer.integers(1))
            for value in (frames, energy)
        )
        writer.node("Div", sound, weight, named=SOUND)
        writer.output(SOUND, [BATCH, "samples"])

    def _overlapped(self, writer: GraphWriter, frames: str) -> str:
        """Add up frames ``hop_size`` apart, shape ``(batch, samples)``."""
        mel = self._settings.mel
        hops = -(-mel.fft_size // mel.hop_size)
        missing = hops * mel.hop_size - mel.fft_size
        if missing:
            frames = writer.node("Pad", frames, writer.integers(0, 0, 0, 0, 0, missing))
        pieces = writer.nodes(
            "Split",
            writer.reshaped(frames, 0, 0, hops, mel.hop_size),
            named=hops,
            axis=2,
            num_outputs=hops,
        )
        shifted = [
            writer.node(
                "Pad",
                writer.node("Squeeze", piece, writer.integers(2)),
                writer.integers(0, hop, 0, 0, hops - 1 - hop, 0),
            )
            for hop, piece in enumerate(pieces)
        ]
        return writer.reshaped(writer.node("Sum", *shifted), 0, -1)


def context_frames(settings: VocoderSettings) -> int:
    """Return how many frames to either side have a part in the sound at a frame."""
    convolutions = (settings.block_count + 1) * (KERNEL_SIZE // 2)
    return convolutions + -(-settings.mel.fft_size // (2 * settings.mel.hop_size))


def half_waves(fft_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first half of the waves of real and imaginary parts of 1.

    They are cosines and negative sines, each of shape ``(bins, fft_size // 2 + 1)``: a row is a
    frequency, a column a sample.
    """
    places = np.arange(fft_size // 2 + 1)
    # Whole numbers up to here: the angles of high frequencies stay exact.
    angles = 2 * math.pi / fft_size * (places[:, np.newaxis] * places % fft_size)
    # Every frequency but the lowest and the highest stands for its negative too.
    shares = np.full((len(places), 1), 2 / fft_size)
    shares[[0, -1]] /= 2
    return shares * np.cos(angles), -shares * np.sin(angles)


def _over_time(writer: GraphWriter, values: str, name: str, *, groups: int = 1) -> str:
    """Convolve over the frames of a value of shape ``(batch, frames, width)``."""
    weight, bias = writer.weight(f"{name}.weight"), writer.weight(f"{name}.bias")
    half = KERNEL_SIZE // 2
    made = writer.node(
        "Conv", turned(writer, values), weight, bias, pads=[half, half], group=groups
    )
    return turned(writer, made)


def _at_most(writer: GraphWriter, logs: str) -> str:
    return writer.node("Min", logs, writer.number(math.log(LARGEST_AMPLITUDE)))
