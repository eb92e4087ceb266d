"""Read the sound of a clip as every voice and recogniser takes it."""

import torch
from torch import Tensor

from edge_client.datasets.speech_set import Clip, too_long, too_short
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import ClipSettings
from models.sound.mel import SoundError
from models.sound.waveform import mono, resample, set_loudness, trim_silence


def read_clip(clip: Clip, settings: ClipSettings, *, sample_rate_hz: int) -> Tensor:
    """Return a clip as one resampled channel at one loudness, silence cut: float32 ``(samples,)``.

    Raises:
        DatasetError: If the sound is damaged, not finite, silent, too short or too long.
    """
    sound = clip.sound.read()
    try:
        samples = resample(
            mono(torch.from_numpy(sound.channels)), sound.sample_rate_hz, sample_rate_hz
        )
        if fault := too_long(len(samples) / sample_rate_hz, settings):
            raise SoundError(fault)
        samples = trim_silence(samples, sample_rate_hz, settings)
        if fault := too_short(len(samples) / sample_rate_hz, settings):
            raise SoundError(f"{fault}, silence around it left out")
        return set_loudness(samples, sample_rate_hz, settings)
    except SoundError as error:
        raise DatasetError(f"{clip.sound.label}: {error}") from None
