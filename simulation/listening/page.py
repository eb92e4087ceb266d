"""One page to judge voices by ear: players, spectra, attention and figures, and nothing outside it.

Sounds are FLAC in the page itself, lossless and half as long as WAV; pictures are those beside it.
So the file can be sent to whoever is to listen.
"""

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from models.pages.document import Html, document, element, table
from simulation.listening.hearing import UtteranceFigures
from simulation.listening.table import ListeningReport, VoiceFigures, headed, said_how, told

PAGE_FILE = "listening.html"

_MOST_TEXTS = 24
"""Texts on the page; a minute is enough for no more, and each has some hundred KB a voice."""

_STYLE = """
blockquote { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
td.heard { white-space: normal; min-width: 14rem; opacity: .8; }
audio { height: 2.2rem; width: 15rem; vertical-align: middle; }
img { max-width: 100%; border-radius: .4rem; margin-top: .5rem; }
"""


class Files(NamedTuple):
    """The places of what was kept: an utterance's WAV by voice and clip, a text's picture."""

    sound: Callable[[str, str], Path]
    picture: Callable[[str], Path]


def page(report: ListeningReport, texts: Mapping[str, str], files: Files) -> str:
    """Return the page as HTML.

    Args:
        texts: What is said, by clip; the first 24 are on the page.

    Raises:
        OSError: If a sound cannot be read.
    """
    shown = list(texts)[:_MOST_TEXTS]
    notes = told(report)
    if len(texts) > len(shown):
        notes.insert(0, f"{len(shown)} of {len(texts)} texts are on this page; the folder has all")
    contents = [
        element("p", said_how(report)),
        _table(report),
        *(Html(line) for clip in shown for line in _text(clip, texts[clip], report, files)),
        element("h2", "Notes"),
        element("ul", *(element("li", element("small", note)) for note in notes)),
    ]
    return document(f"Listening to {report.corpus}", contents, style=_STYLE)


def _table(report: ListeningReport) -> Html:
    heads = ("voice", "", *headed(report.voices[0]))
    rows = [(row.voice, row.kind, *headed(row).values()) for row in report.voices]
    return table(heads, rows, words=2)


def _text(clip: str, text: str, report: ListeningReport, files: Files) -> Iterator[str]:
    yield f"<blockquote>{escape(text.strip())}</blockquote>"
    yield '<div class="wide"><table>'
    for row in report.voices:
        for said in row.utterances:
            if said.clip == clip:
                yield _utterance(row, said, files.sound(row.voice, clip))
    yield "</table></div>"
    picture = files.picture(clip)
    if picture.exists():
        coded = base64.b64encode(picture.read_bytes()).decode()
        alternative = escape(f"spectra and attention: {text.strip()}", quote=True)
        yield f'<img loading="lazy" alt="{alternative}" src="data:image/png;base64,{coded}">'


def _utterance(row: VoiceFigures, said: UtteranceFigures, sound: Path) -> str:
    coded = base64.b64encode(_as_flac(sound)).decode()
    player = f'<audio controls preload="none" src="data:audio/flac;base64,{coded}"></audio>'
    return (
        f"<tr><td>{escape(row.voice)}</td><td>{player}</td>"
        f'<td class="figure">{said.reading.edits} of {said.reading.characters} letters wrong</td>'
        f'<td class="heard">{escape(said.heard)}</td></tr>'
    )


def _as_flac(path: Path) -> bytes:
    import soundfile

    samples, rate = soundfile.read(path, dtype="int16")
    content = io.BytesIO()
    soundfile.write(content, samples, rate, format="FLAC", subtype="PCM_16")
    return content.getvalue()
