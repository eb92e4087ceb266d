"""The form of every speech data set: clips by speaker, whose sound stays on disk until read.

No torch: a device's owner asks too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.datasets.sound_file import SoundSource
from edge_client.datasets.text_set import DatasetError
from models.settings.audio import ClipSettings
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
    fault = too_short(stated_s, settings) or too_long(stated_s, settings)
    return f"{recording.sound.label}: {fault}" if fault else None


def too_short(seconds: float, settings: ClipSettings) -> str | None:
    """Return what is wrong with a recording that lasts so long, None if nothing is."""
    if seconds >= settings.shortest_s:
        return None
    return (
        f"it must last at least {settings.shortest_s:g} s, got {seconds:.2f} s; take it out or "
        "lower shortest_s"
    )


def too_long(seconds: float, settings: ClipSettings) -> str | None:
    """Return what is wrong with a recording that lasts so long, None if nothing is."""
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
