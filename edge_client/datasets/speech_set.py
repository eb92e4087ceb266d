"""The form of every speech data set: clips by speaker, whose sound stays on disk until read."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from edge_client.datasets.sound_file import SoundSource
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import ClipSettings
from models.sound.mel import SoundError
from models.sound.waveform import mono, resample, set_loudness, trim_silence
from models.text.speech_alphabet import SpeechTextSettings
from models.text.spoken_numbers import MissingNum2wordsError
from models.text.spoken_text import SpeechTextError, SpokenText, prepare_speech

_LISTED = 5


@dataclass(frozen=True)
class Recording:
    """One recording, its name unique in the set; ``is_test`` if the publishers test on it."""

    name: str
    speaker: str
    written: str
    sound: SoundSource
    is_test: bool = False


@dataclass(frozen=True)
class Clip:
    """One recording to train on; ``text`` is as a voice reads it (`models.text.spoken_text`)."""

    name: str
    speaker: str
    text: str
    sound: SoundSource


@dataclass(frozen=True)
class SpeechSet:
    """One speech data set.

    Attributes:
        clips: Clips to train on, in the set's order; where ``test`` is empty, also to hold out from
            (`simulation.population.deal_speech.hold_out`).
        test: Clips that the set's publishers keep for testing; often none.
        notes: Notes that a reader of figures must know, one line each.
    """

    clips: tuple[Clip, ...]
    test: tuple[Clip, ...]
    notes: tuple[str, ...] = ()


SpeechLoader = Callable[[Path | None], Sequence[Recording]]


def gather(
    recordings: Sequence[Recording],
    *,
    clip_settings: ClipSettings,
    text_settings: SpeechTextSettings,
) -> SpeechSet:
    """Check every recording by its header and its words, and return what can be trained on.

    Raises:
        DatasetError: If there is none, a name comes twice, a file is missing, damaged, too short or
            too long, or a text cannot be spoken; lists the first five.
    """
    if not recordings:
        raise DatasetError("a speech data set must have a recording, got none")
    names = Counter(recording.name for recording in recordings)
    faults = [f"{name} is there {count} times" for name, count in names.items() if count > 1]
    faults += [
        fault for recording in recordings if (fault := _length_fault(recording, clip_settings))
    ]
    spoken: list[SpokenText] = []
    for recording in recordings:
        try:
            spoken.append(prepare_speech(recording.written, text_settings))
        except SpeechTextError as error:
            faults.append(f"{recording.name}: {error}")
        except MissingNum2wordsError as error:
            raise DatasetError(str(error)) from None
    refuse(faults, "recordings cannot be used")
    pairs = list(zip(recordings, spoken, strict=True))
    return SpeechSet(
        tuple(_clip(recording, text) for recording, text in pairs if not recording.is_test),
        tuple(_clip(recording, text) for recording, text in pairs if recording.is_test),
        tuple(_notes(spoken)),
    )


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
        if fault := _too_long(len(samples) / sample_rate_hz, settings):
            raise SoundError(fault)
        samples = trim_silence(samples, sample_rate_hz, settings)
        if fault := _too_short(len(samples) / sample_rate_hz, settings):
            raise SoundError(f"{fault}, silence around it left out")
        return set_loudness(samples, sample_rate_hz, settings)
    except SoundError as error:
        raise DatasetError(f"{clip.sound.label}: {error}") from None


def refuse(faults: Sequence[str], what: str) -> None:
    """Refuse a set that has faults.

    Raises:
        DatasetError: If ``faults`` is not empty; counts them and lists the first five.
    """
    if faults:
        rest = len(faults) - _LISTED
        listed = "; ".join(faults[:_LISTED]) + (f"; and {rest} more" if rest > 0 else "")
        raise DatasetError(f"{len(faults)} {what}: {listed}")


def _clip(recording: Recording, spoken: SpokenText) -> Clip:
    return Clip(recording.name, recording.speaker, spoken.text, recording.sound)


def _length_fault(recording: Recording, settings: ClipSettings) -> str | None:
    try:
        stated_s = recording.sound.stated_s()
    except DatasetError as error:
        return str(error)
    if stated_s is None:
        return None
    fault = _too_short(stated_s, settings) or _too_long(stated_s, settings)
    return f"{recording.sound.label}: {fault}" if fault else None


def _too_short(seconds: float, settings: ClipSettings) -> str | None:
    if seconds >= settings.shortest_s:
        return None
    return (
        f"it must last at least {settings.shortest_s:g} s, got {seconds:.2f} s; take it out or "
        "lower shortest_s"
    )


def _too_long(seconds: float, settings: ClipSettings) -> str | None:
    if seconds <= settings.longest_s:
        return None
    return (
        f"it must last at most {settings.longest_s:g} s, got {seconds:.2f} s; cut it at a pause "
        "or raise longest_s"
    )


def _notes(spoken: Iterable[SpokenText]) -> Iterable[str]:
    replaced: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for text in spoken:
        replaced.update(text.replaced)
        dropped.update(text.dropped)
    for counts, what in ((replaced, "became plain ones"), (dropped, "were left out")):
        if counts:
            listed = ", ".join(f"U+{ord(sign):04X}" for sign in sorted(counts))
            yield f"{counts.total()} characters of the texts {what}: {listed}"
