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

from simulation.listening.hearing import UtteranceFigures
from simulation.listening.table import ListeningReport, VoiceFigures, headed, said_how, told

PAGE_FILE = "listening.html"

_MOST_TEXTS = 24
"""Texts on the page; a minute is enough for no more, and each has some hundred KB a voice."""

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 0 auto; padding: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; text-align: left; white-space: nowrap; }
td.figure { text-align: right; font-variant-numeric: tabular-nums; }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
blockquote { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
td.heard { white-space: normal; min-width: 14rem; opacity: .8; }
audio { height: 2.2rem; width: 15rem; vertical-align: middle; }
img { max-width: 100%; border-radius: .4rem; margin-top: .5rem; }
small { opacity: .8; }
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
    title = escape(f"Listening to {report.corpus}")
    shown = list(texts)[:_MOST_TEXTS]
    notes = told(report)
    if len(texts) > len(shown):
        notes.insert(0, f"{len(shown)} of {len(texts)} texts are on this page; the folder has all")
    body = [
        f"<h1>{title}</h1>",
        f"<p>{escape(said_how(report))}</p>",
        *_table(report),
        *(line for clip in shown for line in _text(clip, texts[clip], report, files)),
        "<h2>Notes</h2><ul>",
        *(f"<li><small>{escape(note)}</small></li>" for note in notes),
        "</ul>",
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join([head, *body, "</body></html>", ""])


def _table(report: ListeningReport) -> Iterator[str]:
    heads = ["voice", "", *headed(report.voices[0])]
    yield '<div class="wide"><table><tr>'
    yield "".join(f"<th>{escape(head)}</th>" for head in heads)
    yield "</tr>"
    for row in report.voices:
        figures = "".join(f'<td class="figure">{text}</td>' for text in headed(row).values())
        yield f"<tr><td>{escape(row.voice)}</td><td>{escape(row.kind)}</td>{figures}</tr>"
    yield "</table></div>"


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
