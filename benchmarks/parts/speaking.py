"""Let exported voices speak, beside torch: one thread, the sides in turn, no weight trained.

Sizes and times are those of trained voices, but for the length of a sentence: an untrained voice
knows no end, or no durations. It is cut off where it would last too long, and time is always that
of a second of sound.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sized

import numpy as np
import torch

from export.faces.family import Precision
from export.faces.speech import VOCODER_FILE
from export.parity.checked_graph import build_graphs
from export.speaking.voice import Piece, Voice
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.listening.synthesis import synthesise
from models.networks.flat_parameters import initial_parameters, load_parameters
from models.networks.registry import build_network, vocoder_network, voice_network
from models.settings.model import ModelSettings, schema_of
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.sound.griffin_lim import sound_of_mel
from models.text.speech_alphabet import encode_speech
from models.text.spoken_text import prepare_speech
from models.vector.codec import named_tensors
from simulation.config.simulation import config_from, read_tables

PRESET = "speech-espeak"
TEXT = "The keyboard is in the kitchen, near the door."
SPOKEN_S = 3.0
MOST_REPEATS = 5
NEVER = -1.0


def measure_speech(*, quick: bool) -> dict[str, float]:
    """Measure voices of the paper's size and of the preset's, and what makes their sound."""
    small = config_from(read_tables(PRESET), PRESET).model
    if not isinstance(small, TransformerTtsSettings):
        raise TypeError(f"{PRESET} must train a voice, got {type(small).__name__}")
    repeats = 2 if quick else MOST_REPEATS
    weights = named_tensors(VocoderSettings().schema(), untrained(VocoderSettings()))
    vocoder = VocoderRunner(build_graphs(VocoderSettings(), weights)[VOCODER_FILE])
    figures = _sound(vocoder, repeats)
    paper = TransformerTtsSettings()
    for name, settings in (("paper_size", paper), ("small", small)):
        int8, fp32 = (_voice(settings, vocoder, one) for one in ("int8", "float32"))
        rtf = f"rtf_{name}"
        figures |= _in_turn(
            {
                rtf: _speaking(int8),
                f"{rtf}_fp32": _speaking(fp32),
                f"{rtf}_torch": _torch_speaking(settings),
            },
            repeats,
        )
        figures[f"{name}_versus_torch"] = figures[f"{rtf}_torch"] / figures[rtf]
        if settings is paper:
            first = {"first_audio_ms": _first(int8), "first_audio_fp32_ms": _first(fp32)}
            figures |= _in_turn(first, repeats)
    return figures


def _sound(vocoder: VocoderRunner, repeats: int) -> dict[str, float]:
    """Return the seconds that a second of sound takes once its spectrogram is there."""
    settings = VocoderSettings()
    frames = _frames(settings.mel.sample_rate_hz / settings.mel.hop_size)
    draws = np.random.default_rng(1)
    log_mels = (-5 + 2 * draws.standard_normal((frames, settings.mel.mel_count))).astype(np.float32)
    sound = _torch_vocoder()
    mel = torch.from_numpy(log_mels).t().unsqueeze(0)

    @torch.inference_mode()
    def by_torch() -> float:
        return _seconds(sound(mel)[0])

    figures = _in_turn(
        {
            "vocoder_rtf": lambda: _seconds(vocoder.sound(log_mels[np.newaxis])[0]),
            "vocoder_rtf_torch": by_torch,
            "griffin_lim_rtf": lambda: _seconds(sound_of_mel(log_mels, settings.mel, draws=draws)),
        },
        repeats,
    )
    figures["vocoder_versus_torch"] = figures["vocoder_rtf_torch"] / figures["vocoder_rtf"]
    return figures


def _torch_vocoder() -> torch.nn.Module:
    sound = vocoder_network(build_network(VocoderSettings())).eval()
    parameters = torch.from_numpy(untrained(VocoderSettings()))
    load_parameters(sound, schema_of(VocoderSettings()), parameters)
    return sound


def _voice(settings: TransformerTtsSettings, vocoder: VocoderRunner, precision: Precision) -> Voice:
    tensors = named_tensors(schema_of(settings), untrained(settings))
    graphs = VoiceGraphs(build_graphs(settings, tensors, precision=precision))
    return Voice(graphs, settings, vocoder=vocoder)


def untrained(settings: ModelSettings) -> np.ndarray:
    """Return parameters that nobody trained; a voice of them never stops."""
    drawn = initial_parameters(settings, seed=1).numpy()
    for name, tensor in named_tensors(schema_of(settings), drawn).items():
        if name.startswith("head.stop."):
            tensor[:] = NEVER if name.endswith("bias") else 0
    return drawn


def _speaking(voice: Voice) -> Callable[[], float]:
    return lambda: sum(_seconds(piece.sound) for piece in _stream(voice))


def _first(voice: Voice) -> Callable[[], float]:
    """Return what makes the first stretch, whose time counts in milliseconds."""

    def begin() -> float:
        next(_stream(voice))
        return 1e-3

    return begin


def _stream(voice: Voice) -> Iterator[Piece]:
    return voice.stream(TEXT, seed=1, longest_s=SPOKEN_S)


def _seconds(samples: Sized) -> float:
    return len(samples) / VocoderSettings().mel.sample_rate_hz


def _torch_speaking(settings: TransformerTtsSettings) -> Callable[[], float]:
    """Return what says the same with torch, in inference mode."""
    network = voice_network(build_network(settings))
    load_parameters(network, schema_of(settings), torch.from_numpy(untrained(settings)))
    sound = _torch_vocoder()
    draws = torch.Generator().manual_seed(1)
    steps = settings.steps_of(_frames(settings.mel.sample_rate_hz / settings.mel.hop_size))

    @torch.inference_mode()
    def speak() -> float:
        said = prepare_speech(TEXT, settings.text).text
        symbols = torch.tensor(encode_speech(said, settings.text))
        mel = synthesise(network, symbols, generator=draws, longest_steps=steps).mel
        return _seconds(sound(mel.t().unsqueeze(0))[0])

    return speak


def _frames(frames_per_s: float) -> int:
    return round(SPOKEN_S * frames_per_s)


def _in_turn(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Return each side's median and 99th percentile, after one turn that does not count.

    Args:
        sides: Calls to time, by the name of their figure; they return what a time is divided by,
            such as the seconds of sound that were made.
        repeats: Turns that count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, work in sides.items():
            started = time.perf_counter()
            made = work()
            if turn:
                seconds[name].append((time.perf_counter() - started) / made)
    return {
        f"{name}{suffix}": float(np.percentile(taken, percent))
        for name, taken in seconds.items()
        for suffix, percent in (("", 50), ("_p99", 99))
    }
