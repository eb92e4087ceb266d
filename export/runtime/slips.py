"""What a slip of the fingers costs: how unlikely it is that a person types so what they mean.

Costs are nats, -log of the chance. One letter in twenty is a slip: half of these hit a neighbouring
key, of which a key has about five, and the rest leave a letter out, type it twice, swap it with the
next one, or are any other letter. Apostrophes and accents are left out on purpose, so that costs
little. The page reckons with the same numbers (``slips.js``).

References:
    Kernighan, Church and Gale, "A Spelling Correction Program Based on a Noisy Channel Model",
        COLING 1990.
"""

import functools
import math
import unicodedata
from collections.abc import Sequence

NEIGHBOUR = 5.3
DROPPED = 4.9
DOUBLED = 5.3
SWAPPED = 4.9
WRONG = 8.3
EXTRA = 8.0
MARK = 1.5
BLANK = 4.6
# Two ordinary slips of one word; of the rarer ones, one.
MOST = 10.7

_QWERTZ = ("qwertzuiop", "asdfghjkl", "yxcvbnm")
_LAYOUTS = {
    "": ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    **dict.fromkeys(("cs", "sk", "hu"), _QWERTZ),
    **dict.fromkeys(("bs", "hr", "sl", "sr"), ("qwertzuiopšđ", "asdfghjklčć", "yxcvbnm")),
    "da": ("qwertyuiopå", "asdfghjklæø", "zxcvbnm"),
    "de": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"),
    "el": ("ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    **dict.fromkeys(("ca", "es"), ("qwertyuiop", "asdfghjklñ", "zxcvbnm")),
    "fr": ("azertyuiop", "qsdfghjklm", "wxcvbn"),
    **dict.fromkeys(("nb", "nn", "no"), ("qwertyuiopå", "asdfghjkløæ", "zxcvbnm")),
    "ru": ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    **dict.fromkeys(("fi", "sv"), ("qwertyuiopå", "asdfghjklöä", "zxcvbnm")),
    "tr": ("qwertyuıopğü", "asdfghjklşi", "zxcvbnmöç"),
    "uk": ("йцукенгшщзхї", "фівапролджє", "ячсмитьбю"),
}
# Letters that people write for those that Unicode does not take apart.
_PLAIN = dict(zip("ıłøđß", "ilods", strict=True))
_ROW_STARTS = (0.0, 0.25, 0.75)  # in widths of a key
_REACH = 1.3
_KEPT_PAIRS = 4096


class Layout:
    """The keys of a language's keyboard."""

    def __init__(self, languages: Sequence[str] = ()) -> None:
        """Lay the keys out by the first language, a BCP 47 tag, that has a layout of its own."""
        names = [language.partition("-")[0].lower() for language in languages]
        rows = _LAYOUTS[next((name for name in names if name in _LAYOUTS), "")]
        self._places = {
            letter: (start + column, row)
            for row, (start, letters) in enumerate(zip(_ROW_STARTS, rows, strict=True))
            for column, letter in enumerate(letters)
        }
        # Bounded, as people may type any letter there is.
        self.replaced = functools.lru_cache(_KEPT_PAIRS)(self._replaced)

    def _replaced(self, meant: str, typed: str) -> float:
        """Return the cost of typing one letter where another was meant; an emoji never is."""
        if _base(meant) == typed:
            return MARK
        if meant in self._places and typed in self._places:
            (x, y), (other_x, other_y) = self._places[meant], self._places[typed]
            if math.hypot(x - other_x, y - other_y) <= _REACH:
                return NEIGHBOUR
        is_letter = meant in self._places or meant == "'" or unicodedata.category(meant)[0] in "LM"
        return WRONG if is_letter else math.inf


def _base(letter: str) -> str:
    """Return a letter without its accent."""
    if letter in _PLAIN:
        return _PLAIN[letter]
    return unicodedata.normalize("NFD", letter)[0]
