"""Write English abbreviations out, as they are read aloud. No torch.

An abbreviation stands with its period; titles may lack it. The period of one that can end a
sentence stays if a capital letter or nothing follows.
"""

import re
from re import Match

_TITLES = {
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "messrs": "messers",
    "dr": "doctor",
    "prof": "professor",
    "rev": "reverend",
    "hon": "honorable",
    "gen": "general",
    "col": "colonel",
    "maj": "major",
    "capt": "captain",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "gov": "governor",
    "sen": "senator",
    "mt": "mount",
}
_OTHERS = {
    "etc": "et cetera",
    "e.g": "for example",
    "i.e": "that is",
    "vs": "versus",
    "jr": "junior",
    "sr": "senior",
    "esq": "esquire",
    "co": "company",
    "corp": "corporation",
    "inc": "incorporated",
    "ltd": "limited",
    "dept": "department",
    "approx": "approximately",
    "ave": "avenue",
    "blvd": "boulevard",
    "rd": "road",
}
_BEFORE_NUMBERS = {
    "no": "number",
    "nos": "numbers",
    "vol": "volume",
    "fig": "figure",
    "ch": "chapter",
    "pp": "pages",
    "p": "page",
}
_ENDS = r"(?=\s+[A-Z]|\s*$)"


def write_out(text: str) -> str:
    """Return text with its abbreviations written out, letters of initials parted by blanks."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def _title(match: Match[str]) -> str:
    return _TITLES[match[1].lower()]


def _other(match: Match[str]) -> str:
    return _OTHERS[match[1].lower()] + ("." if match["end"] is not None else "")


def _before_number(match: Match[str]) -> str:
    return _BEFORE_NUMBERS[match[1].lower()] + " "


def _initials(match: Match[str]) -> str:
    return " ".join(match[1].replace(".", "")) + ("." if match["end"] is not None else "")


def _any_of(names: dict[str, str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


_RULES = (
    (re.compile(rf"\b({_any_of(_TITLES)})\.", re.IGNORECASE), _title),
    (re.compile(r"\b(Mr|Mrs|Ms|Dr)\b"), _title),
    # (?-i:...) keeps the look at the next word's capital letter.
    (re.compile(rf"\b({_any_of(_OTHERS)})\.(?P<end>(?-i:{_ENDS}))?", re.IGNORECASE), _other),
    (re.compile(rf"\b({_any_of(_BEFORE_NUMBERS)})\.\s*(?=\d)", re.IGNORECASE), _before_number),
    (re.compile(r"\bSt\.(?=\s+[A-Z])"), "saint"),
    (re.compile(r"\bSt\.", re.IGNORECASE), "street"),
    # Right behind a digit only those of the half of a day, or "10m.p.h." would be meters.
    (
        re.compile(rf"(?:\b|(?<=\d)(?=[AaPp]\.[Mm]\.))((?:[A-Za-z]\.){{2,}})(?P<end>{_ENDS})?"),
        _initials,
    ),
    # A name's initial; "I" is rather the end of a sentence.
    (re.compile(r"\b([A-HJ-Z])\.(?=\s+[A-Z])"), r"\1"),
)
