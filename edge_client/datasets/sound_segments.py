"""Turn recordings into what a vocoder is trained on: segments of sound."""

from collections.abc import Iterable

import torch
from torch import Tensor

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.speech_set import Clip
from models.settings.vocoder import VocoderSettings
from models.tasks.vocoding import cut_segments


def sound_segments(clips: Iterable[Clip], model: VocoderSettings) -> Tensor:
    """Return segments, none across two clips, in order: float32 ``(segments, segment_size)``.

    Raises:
        DatasetError: If a clip is damaged, silent, not finite, too short or too long.
        ValueError: If there is no clip.
    """
    cut = [
        cut_segments(
            read_clip(clip, model.clips, sample_rate_hz=model.mel.sample_rate_hz),
            model.segment_size,
        )
        for clip in clips
    ]
    if not cut:
        raise ValueError("there must be at least 1 clip, got 0")
    return torch.cat(cut)
