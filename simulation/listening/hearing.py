"""Listen to one utterance: compare it with the real clip of the same text, and transcribe it.

All comparisons are of sound: the vocoder turns a voice's spectrogram into sound, from which the
compared spectrogram is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import torch
from torch import Tensor

from models.listening.diagonality import diagonality, straightest
from models.listening.edit_distance import ReadingErrors, reading_errors
from models.listening.heard_letters import heard_letters
from models.listening.mel_cepstrum import mel_cepstral_distortion
from models.listening.recogniser import SpeechRecogniser, check_mel
from models.listening.time_warping import WarpingPath, warped
from models.listening.voice_print import KnownVoices
from models.settings.audio import MelSettings
from models.sound.mel import SoundError, log_mel
from simulation.listening.corpus import Real
from simulation.listening.intelligibility import MissingMeasureError, pesq, stoi
from simulation.listening.pitch import PitchErrors, pitch_errors, pitch_track
from simulation.listening.second_judge import second_reading
from simulation.listening.voices import Utterance, Vocoder

Figure = TypeVar("Figure")

STOP_TOLERANCE = 0.2
"""How far from the real clip's length an utterance may end, as a share of it."""

_LEAST_ATTENTION = 3


class UtteranceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one utterance; None where there was nothing to measure.

    Attributes:
        clip: Name of the real clip.
        heard: The recogniser's text.
        seconds: Length of the sound.
        mcd_db: Mel-cepstral distortion, decibels.
        stoi: Intelligibility at the real clip's speed, up to 1.
        pesq: Quality at the real clip's speed, up to 4.64.
        reading: Errors of the recogniser's text.
        second_reading: Errors of what the second judge hears.
        diagonality: That of the straightest head, up to 1.
        has_stopped_in_time: Whether a stop ended it within 20 % of the real clip's length.
        is_speaker: Whether it sounds more like the clip's speaker than like any other.
    """

    clip: str
    heard: str
    seconds: float
    mcd_db: float
    pitch: PitchErrors | None
    stoi: float | None
    pesq: float | None
    reading: ReadingErrors
    second_reading: ReadingErrors | None
    diagonality: float | None
    has_stopped_in_time: bool | None
    is_speaker: bool | None


@dataclass(frozen=True)
class Heard:
    """An utterance as it was heard.

    ``sound`` has shape ``(samples,)``, its log-mels ``mel`` ``(mel, frames)``, and ``attention``,
    the straightest head's, ``(steps, text)``.
    """

    figures: UtteranceFigures
    sound: Tensor
    mel: Tensor
    attention: Tensor | None


class Listener:
    """A listener that measures utterances, and remembers what could not be measured."""

    def __init__(
        self,
        mel: MelSettings,
        recogniser: SpeechRecogniser,
        vocoder: Vocoder,
        speakers: KnownVoices | None,
    ) -> None:
        """Take what makes sound and what judges it; without speakers to tell apart, nobody's."""
        self._missed: dict[str, list[str]] = {}
        self._speakers = speakers
        self._mel = mel
        self._recogniser = recogniser
        self._vocoder = vocoder

    def hear(self, real: Real, said: Utterance) -> Heard:
        """Listen to an utterance of a real clip's text.

        Raises:
            ValueError: If its spectrogram or sound cannot be compared: empty, or not finite.
        """
        sound = self._sound_of(said.mel) if said.sound is None else said.sound
        mel = log_mel(sound, self._mel)
        decibels, path = mel_cepstral_distortion(real.mel, mel)
        reference, in_time = self._in_time(real, sound, mel, path)
        rate = self._mel.sample_rate_hz
        heard, text = self._recogniser.read(mel), heard_letters(real.clip.text)
        attention = _straightest(said.attention)
        figures = UtteranceFigures(
            clip=real.clip.name,
            heard=heard,
            seconds=len(sound) / rate,
            mcd_db=decibels,
            pitch=self._tried("pitch", lambda: self._pitch(real.sound, sound, path)),
            stoi=self._tried("STOI", lambda: stoi(reference, in_time, rate)),
            pesq=self._tried("PESQ", lambda: pesq(reference, in_time, rate)),
            reading=reading_errors(text, heard),
            second_reading=self._tried(
                "the second judge's CER", lambda: reading_errors(text, second_reading(sound, rate))
            ),
            diagonality=None if attention is None else diagonality(attention),
            has_stopped_in_time=_has_stopped_in_time(said, real),
            is_speaker=self._is_speaker(real, mel),
        )
        return Heard(figures, sound, mel, attention)

    @property
    def notes(self) -> list[str]:
        """Return a line for each measure that could not always be taken, with its first reason."""
        return [
            f"{measure} was not measured on {len(reasons)} utterances: {reasons[0]}"
            for measure, reasons in self._missed.items()
        ]

    def _sound_of(self, mel: Tensor) -> Tensor:
        """Return the sound of a spectrogram, with silence at its end if it is too short."""
        check_mel(mel, self._mel.mel_count)
        least = self._mel.fft_size // 2 + 1
        sound = self._vocoder(mel) if mel.shape[1] > 1 else mel.new_zeros(0)
        return torch.nn.functional.pad(sound, (0, max(0, least - len(sound))))

    def _in_time(
        self, real: Real, sound: Tensor, mel: Tensor, path: WarpingPath
    ) -> tuple[Tensor, Tensor]:
        """Return the real sound and the utterance at its speed, as long as each other."""
        if not torch.equal(path.first, path.second):
            sound = self._sound_of(warped(mel, path))
        length = min(len(real.sound), len(sound))
        return real.sound[:length], sound[:length]

    def _pitch(self, reference: Tensor, sound: Tensor, path: WarpingPath) -> PitchErrors:
        return pitch_errors(pitch_track(reference, self._mel), pitch_track(sound, self._mel), path)

    def _is_speaker(self, real: Real, mel: Tensor) -> bool | None:
        speakers = self._speakers
        return None if speakers is None else speakers.nearest(mel) == real.clip.speaker

    def _tried(self, measure: str, take: Callable[[], Figure]) -> Figure | None:
        try:
            return take()
        except (MissingMeasureError, SoundError) as error:
            self._missed.setdefault(measure, []).append(str(error))
            return None


def _straightest(attention: Tensor | None) -> Tensor | None:
    """Return the straightest head's attention; None where there are too few steps to tell."""
    if attention is None or min(attention.shape[1:]) < _LEAST_ATTENTION:
        return None
    return attention[straightest(attention)]


def _has_stopped_in_time(said: Utterance, real: Real) -> bool | None:
    if said.has_ended is None:
        return None
    frames = real.mel.shape[1]
    return said.has_ended and abs(said.mel.shape[1] - frames) <= STOP_TOLERANCE * frames
