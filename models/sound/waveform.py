"""Make recordings alike: one channel, one sampling rate, no silence around, one loudness.

Sound without samples, with other than finite ones or with silence alone is a ``SoundError``.
"""

import torch
from torch import Tensor

from models.settings.audio import ClipSettings
from models.sound.mel import SoundError

_FRAME_S = 0.01
_HIGHEST_PEAK = 0.98


def mono(channels: Tensor) -> Tensor:
    """Return the mean of the channels, ``(samples,)``, of sound ``(samples, channels)``."""
    if not channels.numel():
        raise SoundError("it must have samples, got none")
    if not torch.isfinite(channels).all():
        bad = int((~torch.isfinite(channels)).any(1).sum())
        raise SoundError(f"its samples must be finite, got {bad} that are not; record it again")
    return channels.mean(1)


def resample(samples: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Return float32 sound, ``(samples,)``, at another rate (SoX's resampler, high quality)."""
    if from_hz == to_hz:
        return samples
    try:
        import soxr
    except ModuleNotFoundError:
        raise SoundError("soxr is missing; install sotto[speech]") from None

    return torch.from_numpy(soxr.resample(samples.numpy(), from_hz, to_hz, quality="HQ"))


def trim_silence(samples: Tensor, sample_rate_hz: int, settings: ClipSettings) -> Tensor:
    """Return the sound, ``(samples,)``, without the silence at its two ends, but for a margin.

    A frame of 10 ms is silent if its RMS is ``silence_db`` or more below that of the loudest.
    """
    frame = max(1, round(_FRAME_S * sample_rate_hz))
    sounding = _sounding(samples, frame, settings).nonzero().flatten()
    margin = round(settings.margin_s * sample_rate_hz)
    first = max(0, int(sounding[0]) * frame - margin)
    return samples[first : (int(sounding[-1]) + 1) * frame + margin]


def set_loudness(samples: Tensor, sample_rate_hz: int, settings: ClipSettings) -> Tensor:
    """Return the sound, ``(samples,)``, with its sounding frames at ``loudness_db`` RMS.

    If that would bring a peak above 0.98, the sound stays that much quieter: clipped peaks would be
    noise in every channel.
    """
    frame = max(1, round(_FRAME_S * sample_rate_hz))
    frames = _frames(samples, frame)[_sounding(samples, frame, settings)]
    level = float(frames.double().square().mean().sqrt())
    wanted = 10 ** (settings.loudness_db / 20) / level
    return samples * min(wanted, _HIGHEST_PEAK / float(samples.abs().max()))


def _sounding(samples: Tensor, frame: int, settings: ClipSettings) -> Tensor:
    """Return which frames are not silent, bool, shape ``(frames,)``."""
    levels = _frames(samples, frame).double().square().mean(1).sqrt()
    loudest = float(levels.max())
    if not loudest:
        raise SoundError("it must have sound, got silence alone; record it again or take it out")
    return levels > loudest * 10 ** (-settings.silence_db / 20)


def _frames(samples: Tensor, frame: int) -> Tensor:
    """Return frames without overlap, ``(frames, samples)``, the last padded with zeros."""
    padding = -len(samples) % frame
    return torch.nn.functional.pad(samples, (0, padding)).view(-1, frame)
