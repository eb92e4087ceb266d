"""The outcome of listening: one row for each voice, as a table and as JSON."""

import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from models.listening.edit_distance import ReadingErrors
from simulation.listening.hearing import STOP_TOLERANCE, UtteranceFigures
from simulation.listening.pitch import PitchErrors
from simulation.listening.voices import Kind


class VoiceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one voice; None where there was nothing to measure.

    Attributes:
        kind: The reference itself, a ceiling, a voice under test, or a floor.
        clips: Utterances listened to.
        mcd_db: Mean mel-cepstral distortion, decibels.
        f0_rmse_cents: Root mean square error of pitch over all frames voiced in both, cents.
        f0_rmse_hz: The same in Hz.
        voicing_error: Share of pairs of frames of which one is voiced.
        stoi: Mean, as are ``pesq`` and ``diagonality``.
        character_error_rate: Edits over characters, of all texts together.
        second_error_rate: The same of what the second judge hears.
        stop_accuracy: Share of utterances that a stop ended in time.
        speaker_accuracy: Share of utterances that sound most like their speaker.
    """

    voice: str
    kind: Kind
    clips: int
    mcd_db: float
    f0_rmse_cents: float | None
    f0_rmse_hz: float | None
    voicing_error: float | None
    stoi: float | None
    pesq: float | None
    character_error_rate: float
    second_error_rate: float | None
    diagonality: float | None
    stop_accuracy: float | None
    speaker_accuracy: float | None
    utterances: tuple[UtteranceFigures, ...]


class ListeningReport(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of listening, a row for each voice.

    Attributes:
        held_out: Clips that are held out of all training.
        recogniser_error_rate: Its character error rate on all of those, as they are.
        notes: Lines that a reader of the table must know.
    """

    corpus: str
    held_out: int
    recogniser_error_rate: float
    vocoder: str
    voices: tuple[VoiceFigures, ...]
    notes: tuple[str, ...]


def voice_figures(voice: str, kind: Kind, heard: Sequence[UtteranceFigures]) -> VoiceFigures:
    """Put the figures of a voice's utterances together.

    Raises:
        ValueError: If there is none.
    """
    if not heard:
        raise ValueError(f"{voice} must have said something, got nothing")
    pitch = sum((own.pitch for own in heard if own.pitch is not None), PitchErrors())
    stopped = _mean(own.has_stopped_in_time for own in heard)
    return VoiceFigures(
        voice=voice,
        kind=kind,
        clips=len(heard),
        mcd_db=statistics.fmean(own.mcd_db for own in heard),
        f0_rmse_cents=pitch.rmse_cents,
        f0_rmse_hz=pitch.rmse_hz,
        voicing_error=pitch.voicing_error,
        stoi=_mean(own.stoi for own in heard),
        pesq=_mean(own.pesq for own in heard),
        character_error_rate=sum((own.reading for own in heard), ReadingErrors()).rate,
        second_error_rate=_second_rate(heard),
        diagonality=_mean(own.diagonality for own in heard),
        stop_accuracy=stopped,
        speaker_accuracy=_mean(own.is_speaker for own in heard),
        utterances=tuple(heard),
    )


def _second_rate(heard: Sequence[UtteranceFigures]) -> float | None:
    known = [own.second_reading for own in heard if own.second_reading is not None]
    return sum(known, ReadingErrors()).rate if known else None


_MOST_MISHEARD = 0.2
"""The share of real clips' letters up to which a recogniser's hearing tells voices apart."""
_COLUMNS: Sequence[tuple[str, Callable[[VoiceFigures], float | None], str]] = (
    ("MCD, dB", lambda row: row.mcd_db, ".2f"),
    ("F0 RMSE, cents", lambda row: row.f0_rmse_cents, ".0f"),
    ("F0 RMSE, Hz", lambda row: row.f0_rmse_hz, ".1f"),
    ("V/UV error", lambda row: row.voicing_error, ".1%"),
    ("STOI", lambda row: row.stoi, ".3f"),
    ("PESQ", lambda row: row.pesq, ".2f"),
    ("CER", lambda row: row.character_error_rate, ".3f"),
    ("CER, 2nd judge", lambda row: row.second_error_rate, ".3f"),
    ("diagonality", lambda row: row.diagonality, ".2f"),
    ("stop accuracy", lambda row: row.stop_accuracy, ".0%"),
    ("speaker", lambda row: row.speaker_accuracy, ".0%"),
)


def markdown(report: ListeningReport) -> str:
    """Return the table, with what it is of above it and the notes below."""
    names = [name for name, _, _ in _COLUMNS]
    lines = [
        f"# Listening to {report.corpus}",
        "",
        said_how(report),
        "",
        f"| voice | | {' | '.join(names)} |",
        f"| --- | --- |{' ---: |' * len(names)}",
        *(
            f"| {row.voice} | {row.kind} | {' | '.join(headed(row).values())} |"
            for row in report.voices
        ),
        "",
        *(f"- {note}" for note in told(report)),
    ]
    return "\n".join(lines) + "\n"


def said_how(report: ListeningReport) -> str:
    """Return what was said, how the sound was made, and how well the judge hears."""
    return (
        f"Each voice says the texts of {report.voices[0].clips} clips that nobody was trained on. "
        f"Sound is made by {report.vocoder}. The recogniser, trained on the other real clips, has "
        f"a character error rate of {report.recogniser_error_rate:.3f} on all {report.held_out} "
        "that are held out."
    )


def headed(row: VoiceFigures) -> dict[str, str]:
    """Return a row's figures as the table shows them, by the heads of their columns."""
    return {name: _shown(value(row), style) for name, value, style in _COLUMNS}


def told(report: ListeningReport) -> list[str]:
    """Return the lines that a reader of the table must know."""
    return [*report.notes, *_warnings(report), *_legend()]


def _warnings(report: ListeningReport) -> Iterable[str]:
    if report.recogniser_error_rate > _MOST_MISHEARD:
        yield (
            f"CER tells nothing here: the recogniser mishears {report.recogniser_error_rate:.0%} "
            "of the letters of real clips, and can judge a voice where that is below "
            f"{_MOST_MISHEARD:.0%}; it needs some hundreds of clips to learn from"
        )


def _legend() -> Iterable[str]:
    yield (
        "MCD: 13 cosine coefficients of the log-mel frames without the level, frames paired by "
        "dynamic time warping, mean over pairs; F0 and V/UV over the same pairs; STOI and PESQ "
        "after the utterance is brought to the real clip's speed"
    )
    yield (
        "2nd judge: a recogniser of people's speech that met none of these voices and texts; only "
        "the order of its rates counts, since it hears a synthesiser as a foreign accent"
    )
    yield (
        "CER may pass 1; diagonality is 1 for attention along the diagonal and 0 for attention "
        f"everywhere; a stop counts within {STOP_TOLERANCE:.0%} of the real clip's length"
    )
    yield (
        "speaker: how many utterances are more like their speaker's training clips, by mean and "
        "deviation of the cosine coefficients of loud frames, than like anybody else's"
    )


def _shown(value: float | None, style: str) -> str:
    return "–" if value is None else format(value, style)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.fmean(known) if known else None
