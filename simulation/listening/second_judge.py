"""A second recogniser, which shares nothing with the first: no data, no network, no features.

Moonshine's tiny model (extra ``judge``, 27 M parameters, English) learnt from many people's speech,
never from a corpus that is listened to, and reads the sound itself where the first one reads log
mels. Two judges that put rows in one order make the order believable, whatever their rates.

References:
    [Moonshine] Jeffries et al., "Moonshine: Speech Recognition for Live Transcription and Voice
        Commands", 2024, arXiv:2410.15608.
"""

import importlib
from functools import cache
from typing import Any

import torch
from torch import Tensor

from models.listening.heard_letters import heard_letters
from models.sound.waveform import resample
from models.text.speech_alphabet import SpeechTextSettings
from models.text.spoken_text import SpeechTextError, prepare_speech
from simulation.listening.intelligibility import MissingMeasureError

_RATE_HZ = 16_000
# It writes numbers in digits, and marks.
_AS_SPOKEN = SpeechTextSettings(unknown="drop")
_PAUSES_S = (0.2, 0.5)
"""Silence before and after an utterance, without which its first and last sounds are cut off."""


def second_reading(sound: Tensor, sample_rate_hz: int) -> str:
    """Return what the second judge hears, in the letters that texts are compared in.

    Args:
        sound: Mono, shape ``(samples,)``.

    Raises:
        MissingMeasureError: If the package is missing.
    """
    transcriber = _transcriber()
    heard = resample(sound.float(), sample_rate_hz, _RATE_HZ).clamp(-1, 1)
    before, after = (round(pause * _RATE_HZ) for pause in _PAUSES_S)
    samples = torch.nn.functional.pad(heard, (before, after)).tolist()
    transcript = transcriber.transcribe_without_streaming(samples, _RATE_HZ)
    written = " ".join(line.text for line in transcript.lines)
    try:
        return heard_letters(prepare_speech(written, _AS_SPOKEN).text)
    except SpeechTextError:
        return ""  # It heard no English word.


@cache
def _transcriber() -> Any:
    try:
        package = importlib.import_module("moonshine_voice")
    except ModuleNotFoundError as error:
        raise MissingMeasureError(
            f"the second judge needs moonshine-voice: {error.name} is missing; install sotto[judge]"
        ) from None
    # The model lies in the package: nothing is downloaded.
    folder = package.get_assets_path() / "tiny-en"
    return package.Transcriber(str(folder), package.ModelArch.TINY)
