"""Listen to voices one clip after another, and keep sounds, pictures and figures.

A folder of a listening holds ``listening.md`` and ``listening.json``, a folder of WAVs for each
voice, and for each text a picture of all voices under test side by side: of a run that grew, its
stages. ``listening.html`` has all of it on one page to listen on.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from models.listening.edit_distance import ReadingErrors, reading_errors
from models.listening.heard_letters import heard_letters
from models.listening.recogniser import SpeechRecogniser
from privacy.foundation.atomic_files import READABLE, write_atomically
from simulation.listening.corpus import Corpus, Real
from simulation.listening.hearing import Heard, Listener
from simulation.listening.page import PAGE_FILE, Files, page
from simulation.listening.pictures import Shown, draw_utterances
from simulation.listening.sound_writer import write_wav
from simulation.listening.table import ListeningReport, VoiceFigures, markdown, voice_figures
from simulation.listening.voices import (
    CopySynthesis,
    MeanSpectrum,
    Newcomers,
    OtherSentence,
    RealClip,
    Vocoder,
    Voice,
)

TABLE_FILE, FIGURES_FILE = "listening.md", "listening.json"


def listen(
    corpus: Corpus,
    voices: Sequence[Voice],
    folder: Path,
    *,
    recogniser: SpeechRecogniser,
    vocoder: Vocoder,
    vocoder_name: str,
    clip_count: int,
    newcomers: Newcomers | None = None,
    notes: Sequence[str] = (),
    voice_finished: Callable[[VoiceFigures], None] = lambda figures: None,
) -> ListeningReport:
    """Listen to voices saying held-out texts, between a ceiling and two floors, and write it down.

    Args:
        voices: Those under test; none leaves the ceiling and the floors.
        folder: Where everything is written; made if need be.
        recogniser: Trained on the corpus's training clips.
        clip_count: Held-out clips whose texts are said; all if there are fewer.
        newcomers: Say as many texts of their own, in a row below the voices.
        voice_finished: Hears of each voice's figures.

    Raises:
        ValueError: If two voices have one name, or an utterance cannot be compared.
    """
    reals = [corpus.read(clip) for clip in corpus.listened_to(clip_count)]
    above: list[Voice] = [RealClip(), CopySynthesis(), *voices]
    floors: list[Voice] = [OtherSentence(corpus), MeanSpectrum()]
    everyone = [(voice, reals) for voice in above]
    if newcomers is not None:
        theirs = newcomers.corpus.listened_to(clip_count)
        everyone.append((newcomers.voice, [corpus.read(clip) for clip in theirs]))
    everyone += [(voice, reals) for voice in floors]
    names = [voice.name for voice, _ in everyone]
    if len({*names}) < len(names):
        raise ValueError(f"voices must have different names, got {names}")
    listener = Listener(corpus.mel, recogniser, vocoder, corpus.known_voices())
    rows, shown = [], []
    for voice, said in everyone:
        heard = [listener.hear(real, voice.say(real)) for real in said]
        rows.append(voice_figures(voice.name, voice.kind, [own.figures for own in heard]))
        for own, real in zip(heard, said, strict=True):
            path = folder / _file_name(voice.name) / f"{_file_name(real.clip.name)}.wav"
            write_wav(path, own.sound, corpus.mel.sample_rate_hz)
        if said is not reals:
            _draw(folder, said, [(voice.name, heard)])
        elif voice.kind == ("voice" if voices else "ceiling"):
            shown.append((voice.name, heard))
        voice_finished(rows[-1])
    _draw(folder, reals, shown)
    report = ListeningReport(
        corpus=corpus.name,
        held_out=len(corpus.held_out),
        recogniser_error_rate=error_rate(recogniser, corpus),
        vocoder=vocoder_name,
        voices=tuple(rows),
        notes=(*notes, *listener.notes),
    )
    texts = {real.clip.name: real.clip.text for _, clips in everyone for real in clips}
    _write(folder, report, texts)
    return report


def error_rate(recogniser: SpeechRecogniser, corpus: Corpus) -> float:
    """Return the recogniser's character error rate on all held-out clips, as they are."""
    errors = ReadingErrors()
    for clip in corpus.held_out:
        heard = recogniser.read(corpus.read(clip).mel)
        errors += reading_errors(heard_letters(clip.text), heard)
    return errors.rate


def _draw(
    folder: Path, reals: Sequence[Real], shown: Sequence[tuple[str, Sequence[Heard]]]
) -> None:
    """Draw each text's real spectrogram beside those of the voices."""
    for place, real in enumerate(reals):
        columns = [Shown("real clip", real.mel, None)]
        columns += [Shown(name, heard[place].mel, heard[place].attention) for name, heard in shown]
        path = folder / f"{_file_name(real.clip.name)}.png"
        draw_utterances(columns, path, text=real.clip.text)


def _write(folder: Path, report: ListeningReport, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figures = msgspec.json.format(msgspec.json.encode(report))
    write_atomically(folder / FIGURES_FILE, figures, mode=READABLE)
    write_atomically(folder / TABLE_FILE, markdown(report).encode(), mode=READABLE)
    files = Files(
        sound=lambda voice, clip: folder / _file_name(voice) / f"{_file_name(clip)}.wav",
        picture=lambda clip: folder / f"{_file_name(clip)}.png",
    )
    write_atomically(folder / PAGE_FILE, page(report, texts, files).encode(), mode=READABLE)


def _file_name(name: str) -> str:
    """Return a voice's name as a file name that is valid on any system."""
    return re.sub(r"[^\w+.-]+", "-", name)
