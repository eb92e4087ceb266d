"""Write sound to be listened to."""

import wave
from pathlib import Path

import torch
from torch import Tensor

from models.sound.mel import SoundError

_HIGHEST_PEAK = 0.98
_FULL_SCALE = 2**15 - 1


def write_wav(path: Path, sound: Tensor, sample_rate_hz: int) -> None:
    """Write mono sound, shape ``(samples,)``, as 16-bit WAV, and make the file's folder.

    Sound louder than full scale is made quieter as a whole.

    Raises:
        SoundError: If there is no sample, or one is not finite.
    """
    if sound.ndim != 1 or not len(sound):
        raise SoundError(f"a WAV file needs mono sound, got shape {tuple(sound.shape)}")
    if not torch.isfinite(sound).all():
        raise SoundError("a WAV file needs finite samples, got some that are not")
    peak = float(sound.abs().max())
    fitting = sound if peak <= _HIGHEST_PEAK else sound * (_HIGHEST_PEAK / peak)
    samples = (fitting.double() * _FULL_SCALE).round().to(torch.int16).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(samples.itemsize)
        file.setframerate(sample_rate_hz)
        file.writeframes(samples.astype("<i2").tobytes())
