"""Cut a text into what a voice says at once: sentences, and parts of sentences that are too long.

The text is put into words first (`models.text.spoken_text`), so a period that is left ends a
sentence: abbreviations and numbers have none any more.
"""

import re

from models.text.speech_alphabet import END, LETTERS, START, SpeechTextSettings
from models.text.spoken_text import SpeechTextError, prepare_speech

LONGEST_TEXT = 10_000
"""Characters of a text that is spoken at once."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+")
_PAUSES = re.compile(r"(?<=[,;:])\s+")


def sentences(text: str, settings: SpeechTextSettings, *, longest: int) -> list[str]:
    """Return what a voice says in turn, at most ``longest`` characters each; at least one.

    Raises:
        SpeechTextError: If there is nothing to say, a character that cannot be said, more than
            ``LONGEST_TEXT`` characters, or a word that is longer than the voice takes.
        MissingNum2wordsError: If it has a number to say and num2words is missing.
    """
    if len(text) > LONGEST_TEXT:
        raise SpeechTextError(
            f"a text must have at most {LONGEST_TEXT} characters, got {len(text)}; "
            "speak it in parts"
        )
    room = longest - len(START) - len(END)
    said = prepare_speech(text, settings).text.removeprefix(START).removesuffix(END)
    parts = [part for sentence in _SENTENCE_ENDS.split(said) for part in _fitting(sentence, room)]
    return [f"{START}{part.rstrip(',.:; ')}{END}" for part in parts if _has_letters(part)]


def _fitting(sentence: str, room: int) -> list[str]:
    """Cut a sentence that is too long: at pauses, then between words."""
    if len(sentence.rstrip(",.:; ")) <= room:
        return [sentence]
    if (longest := max(map(len, sentence.split()))) > room:
        raise SpeechTextError(
            f"a word must have at most {room} characters for this voice, got one of {longest}"
        )
    return [
        part
        for clause in _joined(_PAUSES.split(sentence), room)
        for part in ([clause] if len(clause) <= room else _joined(clause.split(), room))
    ]


def _joined(pieces: list[str], room: int) -> list[str]:
    """Join neighbours as long as they fit; a piece that does not fit by itself stays alone."""
    joined: list[str] = []
    for piece in pieces:
        if joined and len(joined[-1]) + 1 + len(piece) <= room:
            joined[-1] += f" {piece}"
        else:
            joined.append(piece)
    return joined


def _has_letters(part: str) -> bool:
    return any(letter in part for letter in LETTERS)
