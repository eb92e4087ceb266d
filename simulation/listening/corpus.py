"""The real clips that voices are held against: some to learn to hear from, others to listen to."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from edge_client.datasets.clip_sound import read_clip
from edge_client.datasets.registry import load_speech
from edge_client.datasets.speech_set import Clip
from edge_client.datasets.text_set import DatasetError
from models.listening.voice_print import FEWEST_CLIPS, KnownVoices
from models.settings.audio import ClipSettings, MelSettings
from models.sound.mel import log_mel
from models.text.speech_alphabet import SpeechTextSettings
from simulation.listening.recogniser_training import LabelledMel
from simulation.population.deal_speech import hold_out

_ONE_IN = 12
_FEWEST_SPEAKERS = 2
_CLIPS_OF_A_PRINT = 12


class CorpusSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clips there are, and how they become spectrograms.

    Attributes:
        dataset: Name in the registry of speech sets, such as ``espeak``.
        held_out_count: Most clips to hold out if the set's publishers hold none out; at most one
            clip in twelve.
        seed: The seed of the draw.
        clips: Lengths, silence and loudness.
        text: The signs that are read.
    """

    dataset: str = "espeak"
    held_out_count: int = 64
    seed: int = 1
    mel: MelSettings = MelSettings()
    clips: ClipSettings = ClipSettings()
    text: SpeechTextSettings = SpeechTextSettings()


@dataclass(frozen=True)
class Real:
    """A real clip: sound, shape ``(samples,)``, and log-mels, natural, shape ``(mel, frames)``."""

    clip: Clip
    sound: Tensor
    mel: Tensor


@dataclass(frozen=True)
class Corpus:
    """Clips whose sound is read on demand.

    Attributes:
        train: Clips that voices and recognisers may learn from.
        held_out: Clips that neither has met, of speakers that the voices know.
        clips: Lengths, silence and loudness.
    """

    name: str
    train: tuple[Clip, ...]
    held_out: tuple[Clip, ...]
    mel: MelSettings
    clips: ClipSettings

    def read(self, clip: Clip) -> Real:
        """Return a clip as it sounds.

        Raises:
            DatasetError: If its sound is damaged, silent, too short or too long.
            SoundError: If it is shorter than half a transform.
        """
        sound = read_clip(clip, self.clips, sample_rate_hz=self.mel.sample_rate_hz)
        return Real(clip, sound, log_mel(sound, self.mel))

    def labelled(self, clips: Sequence[Clip]) -> list[LabelledMel]:
        """Return clips as a recogniser learns from them; raises as ``read``."""
        return [LabelledMel(clip.name, self.read(clip).mel, clip.text) for clip in clips]

    def listened_to(self, count: int) -> tuple[Clip, ...]:
        """Return so many held-out clips, evenly spaced over them, so that all speakers are met.

        Raises:
            ValueError: If ``count`` is below 1.
        """
        if count < 1:
            raise ValueError(f"clips to listen to must be >= 1, got {count}")
        kept = min(count, len(self.held_out))
        return tuple(self.held_out[place * len(self.held_out) // kept] for place in range(kept))

    def known_voices(self) -> KnownVoices | None:
        """Return the speakers of the training clips by their first ones; None if it is one alone.

        Raises as ``read``.
        """
        by_speaker: dict[str, list[Clip]] = {}
        for clip in self.train:
            by_speaker.setdefault(clip.speaker, []).append(clip)
        known = {name: own for name, own in by_speaker.items() if len(own) >= FEWEST_CLIPS}
        if len(known) < _FEWEST_SPEAKERS:
            return None
        return KnownVoices(
            {
                name: [self.read(clip).mel for clip in own[:_CLIPS_OF_A_PRINT]]
                for name, own in known.items()
            }
        )

    @property
    def digest(self) -> str:
        """Return what identifies the training clips and their spectrograms, hexadecimal."""
        known = ([(clip.name, clip.text) for clip in self.train], self.mel, self.clips)
        return hashlib.sha256(msgspec.json.encode(known)).hexdigest()


def open_corpus(settings: CorpusSettings, path: Path | None) -> Corpus:
    """Load a data set and hold clips of it out; ``espeak`` needs no path.

    Raises:
        DatasetError: If the set cannot be loaded, or no clip can be held out.
    """
    speech = load_speech(
        settings.dataset, path, clip_settings=settings.clips, text_settings=settings.text
    )
    train, held_out = speech.clips, speech.test
    if not held_out:
        speakers = len({clip.speaker for clip in train})
        share = max(1, len(train) // _ONE_IN)
        count = min(settings.held_out_count, share, len(train) - speakers)
        generator = torch.Generator().manual_seed(settings.seed)
        train, held_out = hold_out(speech.clips, count, generator=generator)
    if not held_out:
        raise DatasetError(
            f"{settings.dataset} must have a speaker with two clips, one to be held out; got none"
        )
    return Corpus(settings.dataset, train, held_out, settings.mel, settings.clips)
