"""Read a device's own recordings for a vocoder: sound alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from torch import Tensor

from edge_client.datasets.registry import load_speech
from edge_client.datasets.sound_segments import sound_segments
from edge_client.datasets.speech_set import Clip
from edge_client.datasets.text_set import DatasetError, split_in_order
from models.settings.vocoder import VocoderSettings
from models.text.speech_alphabet import SpeechTextSettings


class OwnSounds:
    """A person's recordings as sound alone, in the order of their names."""

    def __init__(self, clips: Sequence[Clip], vocoder: VocoderSettings) -> None:
        self._train, *held_out = split_in_order(clips)
        self._held_out = [clip for part in held_out for clip in part]
        self._vocoder = vocoder

    @classmethod
    def read(cls, data: Path, vocoder: VocoderSettings) -> Self:
        """Find a folder's recordings, laid out as for a voice; the texts are not learnt from.

        Raises:
            DatasetError: As `edge_client.child.own_examples.OwnRecordings.read`.
        """
        found = load_speech(
            "recordings", data, clip_settings=vocoder.clips, text_settings=SpeechTextSettings()
        )
        return cls(found.clips, vocoder)

    def training(self) -> Tensor:
        """Return the segments to train on, float32, shape ``(segments, samples)``."""
        return self._some(self._train, "train on")

    def held_out(self) -> Tensor:
        """Return the segments to score, likewise."""
        return self._some(self._held_out, "score on")

    def delete_trained(self) -> None:
        """Keep everything: recordings are the owner's files, and no program's log."""

    def _some(self, clips: Sequence[Clip], purpose: str) -> Tensor:
        if not clips:
            raise DatasetError(f"the device's recordings must be at least 1 to {purpose}, got 0")
        return sound_segments(clips, self._vocoder)
