"""Compare the graphs of a voice and of a vocoder with torch, over shapes that no export saw.

The decoder is fed the same drawn frames on both sides, step by step here and all at once in torch,
and drops the same elements: a difference in one step then causes none in the next. Values have no
unit before a voice is trained, so a difference is relative to the largest value above 1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from export.bundles.manifest import ParityRecord
from export.faces.speech import MASK, MEMORY_KEYS, MEMORY_VALUES, MIDDLES
from export.parity.words import ParityError, torch_network
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.codec import FlatVector

if TYPE_CHECKING:
    from torch import Tensor

    from models.networks.voice import TransformerTts

VOICE_SHAPES = ((1, 1, 1), (1, 9, 4), (2, 5, 3), (3, 12, 2), (1, 17, 7), (5, 3, 5), (2, 30, 1))
"""Texts, characters of the longest, steps: what is compared, cut to what the voice can take."""

VOCODER_SHAPES = ((1, 2), (2, 3), (1, 19), (3, 7), (1, 50), (2, 11))
"""Spectrograms and frames."""

_SEED = 20_210_708
_DROPPED = 0.5

Array = NDArray[np.float32]


def check_voice(
    graphs: VoiceGraphs,
    settings: TransformerTtsSettings,
    parameters: FlatVector,
    *,
    tolerance: float,
) -> ParityRecord:
    """Compare the graphs of a voice, with a person's tensors if they take any, with torch.

    ``parameters`` are all, that person's too, flat float32 in schema order. Raise ParityError if
    they
    differ by more than the tolerance, or torch is missing.
    """
    made = torch_network(settings, parameters)
    from models.networks.registry import voice_network

    network = voice_network(made)
    draws = np.random.default_rng(_SEED)
    shapes = tuple(_fitting(settings, shape) for shape in VOICE_SHAPES)
    largest = 0.0
    for shape in shapes:
        drawn = _drawn(settings, shape, draws)
        expected, found = _torch_values(network, *drawn), _graph_values(graphs, settings, *drawn)
        for what, values in found.items():
            difference = check_values(values, expected[what], tolerance, f"{what} of {shape}")
            largest = max(largest, difference)
    return ParityRecord(shapes=shapes, largest_difference=largest)


def check_vocoder(
    runner: VocoderRunner, settings: VocoderSettings, parameters: FlatVector, *, tolerance: float
) -> ParityRecord:
    """Compare a vocoder's graph with torch; arguments and errors as for ``check_voice``."""
    made = torch_network(settings, parameters)
    import torch

    from models.networks.registry import vocoder_network

    network = vocoder_network(made)
    draws = np.random.default_rng(_SEED)
    largest = 0.0
    for batch, frames in VOCODER_SHAPES:
        # Log-mels of speech lie about here.
        mels = -5 + 2 * draws.standard_normal((batch, frames, settings.mel.mel_count))
        log_mels = mels.astype(np.float32)
        with torch.inference_mode():
            expected = network(torch.from_numpy(log_mels).transpose(1, 2)).numpy()
        found = runner.sound(log_mels)
        difference = check_values(found, expected, tolerance, f"sound of {(batch, frames)}")
        largest = max(largest, difference)
    return ParityRecord(shapes=VOCODER_SHAPES, largest_difference=largest)


def check_values(found: Array, expected: Array, tolerance: float, where: str) -> float:
    """Return how far values are apart; ParityError beyond tolerance, for NaN or another shape."""
    if found.shape != expected.shape:
        raise ParityError(f"{where} must have shape {expected.shape} as torch's, got {found.shape}")
    difference = float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))
    if not difference <= tolerance:
        raise ParityError(
            f"{where} must agree with torch to {tolerance} of the largest value, differs by "
            f"{difference:.3g}"
        )
    return difference


def _fitting(settings: TransformerTtsSettings, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    batch, text, steps = shape
    return batch, min(text, settings.longest_text), min(steps, settings.longest_steps)


def _drawn(
    settings: TransformerTtsSettings, shape: tuple[int, int, int], draws: np.random.Generator
) -> tuple[NDArray[np.int64], Array, Array]:
    """Return texts of several lengths, frames to be fed, and what the dropouts multiply with."""
    batch, text, steps = shape
    characters = draws.integers(1, settings.text.symbol_count, (batch, text))
    lengths = draws.integers(1, text + 1, batch)
    lengths[0] = text
    characters[np.arange(text) >= lengths[:, np.newaxis]] = 0
    mels = settings.mel.mel_count
    frames = draws.standard_normal((batch, steps * settings.reduction_factor, mels))
    is_kept = draws.random((steps, 2, batch, settings.mel_prenet_size)) >= _DROPPED
    return characters, frames.astype(np.float32), (is_kept / (1 - _DROPPED)).astype(np.float32)


def _graph_values(
    graphs: VoiceGraphs,
    settings: TransformerTtsSettings,
    characters: NDArray[np.int64],
    frames: Array,
    kept: Array,
) -> Mapping[str, Array]:
    memory, past = graphs.read(characters), graphs.fresh_past(len(characters))
    last = frames[:, settings.reduction_factor - 1 :: settings.reduction_factor]
    fed = np.zeros_like(last[:, 0])
    made, stops = [], []
    for step, multipliers in enumerate(kept):
        found = graphs.step(memory, past, fed, multipliers)
        made.append(found.frames)
        stops.append(found.stop)
        past, fed = found.past, last[:, step]
    return {
        **{name: value.numpy() for name, value in memory.items() if name != MASK},
        "frames": np.concatenate(made, axis=1),
        "stops": np.stack(stops, axis=1),
        "log-mels": graphs.finish(frames),
    }


def _torch_values(
    network: "TransformerTts", characters: NDArray[np.int64], frames: Array, kept: Array
) -> Mapping[str, Array]:
    import torch

    from models.layers.speech_alignment import middles

    fed = torch.from_numpy(frames)
    multipliers = iter(torch.from_numpy(kept).permute(1, 2, 0, 3))

    class Given(torch.nn.Module):
        def forward(self, values: "Tensor") -> "Tensor":
            multiplier: Tensor = next(multipliers)
            return values * multiplier

    if network.mel_prenet is not None:
        network.mel_prenet.dropout = Given()  # type: ignore[assignment]  # not a drawn one
    with torch.inference_mode():
        memory = network.encode(torch.from_numpy(characters))
        values, _ = network.decode(memory, network.fed(fed))
        made, stops = network.made(values)
        everywhere = torch.ones(frames.shape[:2], dtype=torch.bool)
        log_mels = network.log_mels(network.postnet(fed, everywhere))
        read = [
            block.cross_attention.keys_values(memory.values) for block in network.decoder_blocks
        ]
    return {
        **({} if memory.durations is None else {MIDDLES: middles(memory.durations).numpy()}),
        **{f"{MEMORY_KEYS}{place}": keys.mT.numpy() for place, (keys, _) in enumerate(read)},
        **{f"{MEMORY_VALUES}{place}": held.numpy() for place, (_, held) in enumerate(read)},
        "frames": made.numpy(),
        "stops": stops.numpy(),
        "log-mels": log_mels.numpy(),
    }
