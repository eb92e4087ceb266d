"""Turn recordings into what a voice is trained on, again only when a clip's file has changed."""

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch.nn import functional

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.sound_file import SoundFile
from edge_client.datasets.speech_set import Clip
from edge_client.datasets.text_set import DatasetError
from models.settings.voice import TransformerTtsSettings
from models.sound.mel import SoundError, log_mel
from models.tasks.speech_examples import SpeechClip, SpeechExamples
from models.text.speech_alphabet import encode_speech

_KEPT_CLIPS = 4096


def speech_examples(clips: Iterable[Clip], model: TransformerTtsSettings) -> SpeechExamples:
    """Return clips' spectrograms and characters in order; the last frame fills up the last step.

    Raises:
        DatasetError: If a clip is damaged, too short or too long.
    """
    return SpeechExamples.of(_features(clip, model, _version(clip)) for clip in clips)


def _version(clip: Clip) -> tuple[int, int] | None:
    """Return the time of change and the size of a clip's file; None where it is no file."""
    if not isinstance(clip.sound, SoundFile) or clip.sound.content is not None:
        return None
    try:
        found = clip.sound.path.stat()
    except OSError:
        return None  # Reading it will tell what is wrong.
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=_KEPT_CLIPS)
def _features(
    clip: Clip, model: TransformerTtsSettings, version: tuple[int, int] | None
) -> SpeechClip:
    del version  # Tells a changed file from the one that was read before.
    if len(clip.text) > model.longest_text:
        raise DatasetError(
            f"{clip.sound.label}: its text must have at most {model.longest_text} characters, got "
            f"{len(clip.text)}; cut it at a pause, or raise model.longest_text"
        )
    samples = read_clip(clip, model.clips, sample_rate_hz=model.mel.sample_rate_hz)
    try:
        mels = log_mel(samples, model.mel)
    except SoundError as error:
        raise DatasetError(f"{clip.sound.label}: {error}") from None
    missing = -mels.shape[1] % model.reduction_factor
    filled = functional.pad(mels.unsqueeze(0), (0, missing), mode="replicate")[0]
    symbols = torch.tensor(encode_speech(clip.text, model.text), dtype=torch.int64)
    return SpeechClip(filled.t().contiguous(), symbols)
