"""Turn typed text into words, and keep out what must never become one.

Numbers, web and e-mail addresses, paths and masked names can identify a person, so each becomes
``<unk>`` here, before any counting, training or vocabulary: the model may know that something stood
there, never what. Punctuation is dropped; the end of a sentence is the end of a list. No torch: the
resting device and the export runtime use this file.

References:
    Unicode Standard Annex #15, "Unicode Normalization Forms", section 13: Stream-Safe Text Format.
"""

import re
import unicodedata

from models.text.letters import MARKS, ONE_EMOJI, POINTS, is_emoji

UNK_WORD = "<unk>"
EOS_WORD = "<eos>"

# Apostrophes as phones, browsers and word processors write them, and the letter that lower-casing
# would part from its dot.
_ALIKE = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "＇": "'", "`": "'", "´": "'", "İ": "i"})
# Words with a digit stand for what was hidden, so hiding writes this.
_HIDDEN = " 0 "
_TOP_LEVEL = "com|org|net|edu|gov|info|biz|co|io|uk|de|fr|eu|sg|in|us|ca|au|tv|me"
# Every pattern starts at the start of a run and gives nothing back, so that none is quadratic.
ADDRESS = re.compile(
    rf"""
      (?<![\w+.-])[a-z][a-z0-9+.-]*+://\S*[\w/]  # any scheme; a full stop after it is a sentence's
    | (?<![\w.-])www\.\S*[\w/]
    | (?<![\w.+-])[\w.+-]++@\w(?:[^\s@<>]*\w)?   # e-mail
    | (?<![\w.-])(?:[\w-]++\.)+(?:{_TOP_LEVEL})\b(?:/(?:\S*[\w/])?)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
NOT_A_WORD = re.compile(
    r"""
      <[^<>\s]{1,30}>                            # a mask such as <#>, <email> or <unk>
    | (?P<path>(?<!\S)[~.]{0,2}/\S*[\w/])
    | (?P<number>\b[^\W\d]*+\d(?:[.,:/'-]?\w)*)  # a number, a time, 4ever
    | \b[^\W_]*+_\w*                             # a programmer's name for something
    """,
    re.VERBOSE,
)
# Without this, the letter of :p would count as a word.
_EMOTICON = re.compile(r"(?<!\w)[:;=]['-]?[a-z](?!\w)")
_SENTENCE_END = re.compile(r"[.!?…]{2,}|[!?…]|\.(?=\s|$)|[\r\n]+")
RUN = rf"[^\W_](?:[^\W_]|[{MARKS}])*+"
"""Pattern of letters and digits with the marks on them."""

_WORD = re.compile(rf"{RUN}(?:'{RUN})*|{ONE_EMOJI}")
_MARK = re.compile(f"['{MARKS}]")
_POINT = re.compile(f"[{POINTS}]")
# As the Stream-Safe Text Format has it; no language sets more on one letter.
_MOST_MARKS = 30
# Python's patterns know no marks by name, so emoji may be found too.
_MAYBE_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{_MOST_MARKS + 1},}}")


def compose(text: str) -> str:
    """Return a text with letter and accent as one character where there is such (NFC).

    The surplus of a run of more than 30 combining marks is dropped: ordering a run takes time that
    grows with its square, and no other thread runs meanwhile.
    """
    return unicodedata.normalize("NFC", _MAYBE_MARKS.sub(_without_surplus, text))


def split_sentences(text: str) -> list[list[str]]:
    """Return the sentences of a typed text, each as lower-case words; empty ones are left out.

    Sentences end at ``.``, ``!``, ``?`` and at line ends. Apostrophes inside a word stay
    (``don't``), hyphens part words, vowel points of Hebrew and Arabic are left out, an emoji is a
    word. Joining the result with spaces and line ends and splitting it again gives the same
    sentences.
    """
    visible = NOT_A_WORD.sub(_HIDDEN, ADDRESS.sub(_HIDDEN, as_read(text)))
    parts = _SENTENCE_END.split(_EMOTICON.sub(" ", visible))
    return [words for part in parts if (words := _words(part))]


def as_read(text: str) -> str:
    """Return a text in the one spelling in which words are read.

    Small letters, one kind of apostrophe, accents composed, no vowel points.
    """
    # Lower-casing can part a letter from its accent, so composing comes after it.
    small = compose(text.translate(_ALIKE).lower())
    return small if small.isascii() else _POINT.sub("", small)


def tokenise(text: str) -> list[str]:
    """Return the lower-case words of a typed text, sentence after sentence, without marks."""
    return [word for sentence in split_sentences(text) for word in sentence]


def may_be_word(word: str) -> bool:
    """Return whether a vocabulary may hold ``word``: no digit, no address, no white space."""
    return bool(word) and not (
        any(character.isdigit() or character.isspace() for character in word)
        or ADDRESS.search(word)
    )


def _words(part: str) -> list[str]:
    return [word if _is_word(word) else UNK_WORD for word in _WORD.findall(part)]


def _is_word(word: str) -> bool:
    return word.isalpha() or is_emoji(word) or _MARK.sub("", word).isalpha()


def _without_surplus(run: re.Match[str]) -> str:
    """Return a run of marks and signs without the marks that follow 30 others."""
    kept, count = [], 0
    for character in run[0]:
        count = count + 1 if unicodedata.category(character)[0] == "M" else 0
        if count <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)
