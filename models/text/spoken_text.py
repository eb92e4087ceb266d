"""Turn written English into the characters that a voice reads. No torch.

Abbreviations, numbers, dates, times, money and measures become words; accents and typographic marks
become plain ones; then lower case, a blank before and a period after. Roman numerals and words in
capital letters without periods are read as they stand.

No character is passed over in silence. A sign without a reading is refused or dropped as the
settings say, a letter or digit of another script is always refused, and the result counts every
character that was replaced or dropped.

References:
    [FedDT-TTS] arXiv:2107.08795, section 3.1: "I am 10 years old" becomes " i am ten years old.".
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from models.text.speech_alphabet import END, LETTERS, START, SpeechTextSettings
from models.text.spoken_abbreviations import write_out
from models.text.spoken_amounts import say_amounts
from models.text.words import compose

_MARKS = {
    **dict.fromkeys("\u2019\u2018\u02bc\uff07\u00b4`", "'"),
    **dict.fromkeys('\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a"\u00ad*_', ""),
    **dict.fromkeys("\u2014\u2015", ", "),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
    **dict.fromkeys("()[]{}", ", "),
    **dict.fromkeys("|~^\u2022\u00b7", " "),
    "\u2026": ".",
    "\u2044": "/",
    "\u00bf": "",
    "\u00a1": "",
    "\\": " backslash ",
}
_LETTERS = {
    **{"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O"},
    **{"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "th", "Ð": "Th", "þ": "th", "Þ": "Th"},
    **{"ı": "i"},
}
_READINGS = {
    "&": " and ",
    "%": " percent ",
    "+": " plus ",
    "=": " equals ",
    "@": " at ",
    "#": " number ",
    "/": " slash ",
    "<": " less than ",
    ">": " greater than ",
    "$": " dollars ",
    "£": " pounds ",
    "€": " euros ",
    "¥": " yen ",
    "¢": " cents ",
    "°": " degrees ",
    "×": " times ",
    "÷": " divided by ",
    "±": " plus or minus ",
    "§": " section ",
    "©": " copyright ",
    "®": " registered ",
    "™": " trademark ",
}
_READING = str.maketrans(_READINGS)
_PAUSES = ",.:;!?"


class SpeechTextError(ValueError):
    """Raised when a text cannot be spoken; names characters by their numbers, never the text."""


@dataclass(frozen=True)
class SpokenText:
    """A text as a voice reads it, with the changes made to it.

    Attributes:
        text: Characters of the alphabet; begins with a blank, ends with a period.
        replaced: How often each accented letter or typographic mark became a plain one.
        dropped: How often each sign without a reading was left out.
    """

    text: str
    replaced: Mapping[str, int]
    dropped: Mapping[str, int]


def prepare_speech(text: str, settings: SpeechTextSettings) -> SpokenText:
    """Return a text as a voice reads it.

    Raises:
        SpeechTextError: If there is nothing to say in it, a letter or digit of another script, or a
            sign without a reading that the settings refuse.
        MissingNum2wordsError: If it has a number to say and num2words is missing.
    """
    replaced: Counter[str] = Counter()
    plain = "".join(_plain(character, replaced) for character in compose(text))
    words = _say_dots(say_amounts(write_out(plain))).translate(_READING).lower()
    kept, dropped = _keep_known(" ".join(words.split()), settings)
    said = _tidy(kept)
    if not any(letter in said for letter in LETTERS):
        raise SpeechTextError(
            "a text must have a word or a number to say, got "
            + ("only signs" if text.strip() else "an empty one")
        )
    return SpokenText(START + said + END, dict(replaced), dict(dropped))


def _plain(character: str, replaced: Counter[str]) -> str:
    """Return the plain form of one character, counted if it is another."""
    plain = _MARKS.get(character)
    if plain is None and not character.isascii() and character not in _READINGS:
        plain = _LETTERS.get(character) or _without_accent(character)
    if plain is None:
        return character
    replaced[character] += 1
    return plain


def _without_accent(character: str) -> str | None:
    """Return what is left in ASCII, such as "e" of "é" or " 1/2" of "½"; None if nothing is."""
    parts = unicodedata.normalize("NFKD", character).replace("\u2044", "/")
    plain = "".join(part for part in parts if not unicodedata.combining(part))
    if not plain.isascii():
        return None
    # So that 2½ is two and a half, not 21 over 2.
    return f" {plain}" if "/" in plain else plain


def _say_dots(text: str) -> str:
    return re.sub(r"(?<=[A-Za-z])\.(?=[a-z])", " dot ", text)


def _keep_known(text: str, settings: SpeechTextSettings) -> tuple[str, Counter[str]]:
    """Return the text without signs that have no reading, and how often each was left out."""
    unknown = Counter(character for character in text if character not in settings.alphabet)
    foreign = {sign: count for sign, count in unknown.items() if _carries_words(sign)}
    if foreign:
        raise SpeechTextError(
            f"a text must be written in the letters a to z, got {_listed(foreign)}; "
            "write it in Latin letters first"
        )
    if unknown and settings.unknown == "refuse":
        raise SpeechTextError(
            f"a text must have only signs that are read aloud, got {_listed(unknown)}; "
            'take them out, or set unknown = "drop"'
        )
    return "".join(" " if character in unknown else character for character in text), unknown


def _carries_words(character: str) -> bool:
    """Return whether leaving the character out would leave out something that is spoken."""
    is_variation = "\ufe00" <= character <= "\ufe0f"
    return unicodedata.category(character)[0] in "LNM" and not is_variation


def _tidy(text: str) -> str:
    """Return the text with single blanks and pauses, none at its start, no plain one at its end."""
    text = re.sub(r"\s-+\s|-{2,}", ", ", text)
    text = re.sub(r"(?<!\w)-|-(?!\w)|(?<!\w)'(?!\w)", " ", text)
    # Every blank of a run would look for a mark behind the run.
    text = " ".join(text.split())
    text = re.sub(rf"\s*([{_PAUSES}])(?:\s*[{_PAUSES}])*", _strongest_pause, text)
    text = re.sub(rf"([{_PAUSES}])(?=[a-z'])", r"\1 ", text)
    return " ".join(text.split()).lstrip(_PAUSES + " ").rstrip(",.:; ")


def _strongest_pause(match: re.Match[str]) -> str:
    return max(match[0].replace(" ", ""), key=",:;.!?".index)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"U+{ord(sign):04X} x {count}" for sign, count in sorted(counts.items()))
