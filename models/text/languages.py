"""Guess in which script and language a text is, from its letters and its commonest words.

A guess for people who look at their own text, not a classifier: a language counts only if enough of
the words are among its commonest, and one that is not in the table is never named. Scripts that put
no blanks between words are named, as their sentences would be read as single words.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from models.text.words import UNK_WORD

_COMMONEST: Mapping[str, str] = {
    "Dutch": "de het een van ik je niet dat is op te die en zijn maar wat met er",
    "English": "the to and you i a of is in that it for on my are have so what not with",
    "French": "de je la le et les des est un que pas vous une en tu ça pour dans il c'est",
    "German": "ich und die der nicht ist das du es ein zu wir mit auf den sie auch was in so",
    "Indonesian": "yang di dan ini itu dengan aku untuk tidak ada saya kamu dari ke bisa akan",
    "Italian": "di che non è la il un per sono in mi una si con ma ti lo ho come da",
    "Polish": "nie to się w na i że z do jest co jak tak o ale za mi już po ma",
    "Portuguese": "de que o a não e um uma para com os do da em eu você se por no mais",
    "Spanish": "de que no la el en y es un por lo una los me se para con mi te si",
    "Swedish": "och att det jag är i en som på inte har du för med av den så till ett om",
    "Turkish": "bir ve bu ne için da de ben çok mi değil var o sen ama gibi daha bana kadar",
}
_LEAST_SHARE = 0.1
_LEAST_LEAD = 1.2

# What Unicode calls a script, where people call it otherwise.
_SCRIPT_NAMES = {"CJK": "Chinese", "HANGUL": "Korean", "FULLWIDTH": "Latin"}
WITHOUT_BLANKS = frozenset(
    ("Chinese", "Hiragana", "Katakana", "Khmer", "Lao", "Myanmar", "Thai", "Tibetan")
)
"""Scripts that put no blanks between words, as `scripts` names them."""

UNPARTED_LANGUAGES: Mapping[str, str] = {
    "bo": "Tibetan",
    "dz": "Dzongkha",
    "ja": "Japanese",
    "km": "Khmer",
    "lo": "Lao",
    "my": "Burmese",
    "th": "Thai",
    "yue": "Cantonese",
    "zh": "Chinese",
}
"""Languages written without blanks between words, by the first part of a BCP 47 tag."""

_TAG = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{1,8}){0,4}")
_NO_SCRIPT = ("MODIFIER", "FEMININE", "MASCULINE", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT")


def check_language_tag(tag: str) -> None:
    """Raise ``ValueError`` unless a text is a BCP 47 tag of a language, as ``en`` or ``pt-BR``."""
    if not _TAG.fullmatch(tag):
        raise ValueError(f"language must be a BCP 47 tag such as en or pt-BR, got {tag[:40]!r}")


def primary(tag: str) -> str:
    """Return the language of a BCP 47 tag, without script and region."""
    return tag.partition("-")[0].lower()


def scripts(words: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each script among the letters of counted words, largest first."""
    found: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            if (script := _script(letter)) is not None:
                found[script] += count
    return {script: count / found.total() for script, count in found.most_common()}


def scripts_told(words: Mapping[str, int]) -> str:
    """Return the scripts of counted words as a person reads them, "Chinese 98 %, Latin 2 %"."""
    shares = [(name, round(100 * share)) for name, share in scripts(words).items()]
    return ", ".join(f"{name} {percent or '< 1'} %" for name, percent in shares[:3])


def letters_told(sentences: Iterable[Sequence[str]]) -> str:
    """Return the scripts of a text's words, hidden ones aside, as `scripts_told` does.

    Writing without blanks is said to be such: nothing of it can be learnt.
    """
    words = open_words(sentences)
    told = scripts_told(words) or "none"
    return f"{told}, writing without blanks between words" if is_unparted(words) else told


def open_words(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """Count the words of a text, hidden ones aside."""
    words = Counter(word for sentence in sentences for word in sentence)
    del words[UNK_WORD]
    return words


def is_unparted(words: Mapping[str, int]) -> bool:
    """Return whether most letters of counted words are of writing without blanks."""
    return sum(share for name, share in scripts(words).items() if name in WITHOUT_BLANKS) > 1 / 2


def likely_language(words: Mapping[str, int]) -> str | None:
    """Return the language whose commonest words are most of the counted ones; None if unclear."""
    total = max(1, sum(words.values()))
    shares = sorted(
        (sum(words.get(word, 0) for word in common.split()) / total, name)
        for name, common in _COMMONEST.items()
    )
    (second, _), (share, name) = shares[-2:]
    return name if share >= max(_LEAST_SHARE, _LEAST_LEAD * second) else None


@functools.cache
def _script(letter: str) -> str | None:
    """Return the script of a letter: the first word of its name in Unicode."""
    first = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
    if not first or first in _NO_SCRIPT:
        return None
    return _SCRIPT_NAMES.get(first, first.capitalize())
