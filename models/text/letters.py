"""Characters that make words in the writing systems of a keyboard's languages.

Python's patterns know letters and digits, but neither marks nor emoji by name, so their ranges
stand here, as parts of a pattern's ``[...]``. The page has the same ranges (``letters.js``).

References:
    Unicode Standard Annex #29, "Unicode Text Segmentation": writing without blanks needs a
        dictionary.
    Unicode Technical Standard #51, "Unicode Emoji": modifiers and sequences.
"""

import re

MARKS = (
    "\u0300-\u036f\u0483-\u0487"  # accents that compose with no letter
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"  # Arabic
    "\u07a6-\u07b0"  # Thaana
    "\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0951-\u0957\u0962\u0963"  # Devanagari
    "\u0981-\u0983\u09bc\u09be-\u09cd\u09d7\u09e2\u09e3"  # Bengali
    "\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75"  # Gurmukhi
    "\u0a81-\u0a83\u0abc\u0abe-\u0acd\u0ae2\u0ae3"  # Gujarati
    "\u0b01-\u0b03\u0b3c\u0b3e-\u0b57\u0b62\u0b63"  # Oriya
    "\u0b82\u0bbe-\u0bcd\u0bd7"  # Tamil
    "\u0c00-\u0c04\u0c3c\u0c3e-\u0c56\u0c62\u0c63"  # Telugu
    "\u0c81-\u0c83\u0cbc\u0cbe-\u0cd6\u0ce2\u0ce3"  # Kannada
    "\u0d00-\u0d03\u0d3b\u0d3c\u0d3e-\u0d4d\u0d57\u0d62\u0d63"  # Malayalam
    "\u0d81-\u0d83\u0dca-\u0ddf\u0df2\u0df3"  # Sinhala
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ecd"  # Thai, Lao
    "\u0f71-\u0f84\u0f8d-\u0fbc\u102b-\u103e\u17b4-\u17d3\u17dd"  # Tibetan, Burmese, Khmer
    "\u200c\u200d"  # joiners inside Persian and Indian words
)
"""Marks that belong to the letter before them; most accents of Latin compose with theirs."""

POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
"""Vowels and lengthening of Hebrew and Arabic, which everyday text and word lists leave out."""

UNPARTED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"  # Chinese and Japanese
)
"""Letters of writing that puts no blanks between words."""

EMOJI = (
    "\u2600\u2615\u2639\u263a\u2665\u26a1\u26bd\u2705\u270a-\u270c\u2714\u2728\u274c\u2753\u2757"
    "\u2764\u2b50\U0001f300-\U0001f3fa\U0001f400-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f900-\U0001f9ff\U0001fa70-\U0001faff"
)
"""Signs that people type as they type words."""

ONE_EMOJI = (
    # A tone of skin and a gender make no other word; what is joined to others is none.
    rf"(?<!\u200d)[{EMOJI}](?![\U0001f3fb-\U0001f3ff]?\ufe0f?\u200d(?![\u2640\u2642]))"
)
"""Pattern of an emoji that is a word of its own; it matches the sign alone."""

_UNPARTED = re.compile(f"[{UNPARTED}]")
_EMOJI = re.compile(f"[{EMOJI}]")


def is_unparted(word: str) -> bool:
    """Return whether a word has a letter of writing that puts no blanks between words."""
    return not word.isascii() and _UNPARTED.search(word) is not None


def is_emoji(word: str) -> bool:
    """Return whether a word is one emoji."""
    return len(word) == 1 and _EMOJI.match(word) is not None
