"""Cut from a person's text what no shared model may learn from it.

Numbers and electronic addresses become ``<unk>`` in every text (`models.text.words`), as no word
list has them. The words of a street's name and of a person's are in the lists, so only where they
stand tells them: a street behind or before its number, a name behind a title. Text to train and
score on is read through here; a strip reads what is typed as it stands, since nothing leaves the
device with it and a cut word could not be completed while it is typed.

The rules are patterns, not understanding: "Anna called" stays, since nothing marks the name.

References:
    ISO/IEC 7812-1:2017, annex B: the check digit of a card's number (Luhn).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Literal, get_args

from models.text.words import ADDRESS, NOT_A_WORD, compose, split_sentences

Kind = Literal["names", "addresses", "cards", "emails", "links", "numbers"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What is cut: names behind titles, street addresses, numbers of cards, e-mail addresses, web
addresses and paths, all other numbers."""

# Reads as one word that was hidden.
_MASK = " <cut> "

_DIGIT = re.compile(r"\d")
_CARD = re.compile(
    r"""
    (?<![\w.+-])
    (?:\d{13,19}|\d{4}([ .\u00a0-])\d{4}\1\d{4}\1\d{1,7}|\d{4}([ .\u00a0-])\d{6}\2\d{4,5})
    (?![\w-])
    """,
    re.VERBOSE | re.ASCII,
)

# Titles that mean nothing else stand before a name in any case ("mr jones"); the others, which are
# words too ("i miss you"), only where both begin with a capital.
_TITLE = re.compile(
    r"""
    (?<![\w@./-])(?<!(?i:tl)[;:])
    (?:(?P<sure>(?i:mr|mrs|messrs|dr|prof|mme|mlle|sra|srta))
      |Miss|Ms|Mx|Mister|Sir|Dame|Lady|Lord|Doctor|Professor|Rev|Reverend|Captain|Judge|Uncle|Aunt
      |Auntie|Herrn?|Frau|Fräulein|Monsieur|Madame|Mademoiselle|Señor|Señora|Señorita|Sr
      |Signor|Signora|Signorina|Meneer|Mevrouw|Dhr|Mevr)
    (?P<gap>\.?[ \t\u00a0]+|\.(?=[^\W\d_]))
    """,
    re.VERBOSE,
)
_NAME_WORD = re.compile(r"[^\W\d_]++(?:['’-][^\W\d_]++)*+")
_GAP = re.compile(r"[ \t\u00a0]++")
_GAP_OF_INITIAL = re.compile(r"\.?[ \t\u00a0]*+")
_MOST_NAMES = 3
_PARTICLE_WORDS = "van von der den de del della di da du la le al el bin ibn ter ten"
_NEVER_NAMES = (
    "a an and at but by for from he her his i i'm i'll i've if in it my not of on or our she so "
    "that the their them then there they this to und ou et we what when who with y you your"
)
# "Will" and "May" are names where they have a capital.
_NO_NAMES_IF_SMALL = (
    "are is was were be been has had have will would can could may might must should do does did "
    "said says say told asked called comes came goes went knows thinks wants yet now today again "
    "tomorrow tonight just only also too here appointment office right"
)
_PARTICLES, _NEVER, _NEVER_IF_SMALL = (
    frozenset(words.split()) for words in (_PARTICLE_WORDS, _NEVER_NAMES, _NO_NAMES_IF_SMALL)
)

_BLANK = r"[ \t\u00a0]"
_WORD = r"[^\W\d_]{1,30}+(?:['’-][^\W\d_]{1,30}+)*+"
# Small function words tell "5 minutes down the road" from an address.
_PLACE_WORD = (
    r"(?!(?:the|a|an|my|your|his|her|our|their|this|that|of|on|in|to|at|from|by|down|up|off|and|or|"
    r"per|is|was|are|were|minutes?|hours?|miles?|km|metres?|meters?|people|times?)\b)"
    rf"(?:[^\W\d_]{{1,2}}\.|{_WORD})"
)
_NUMBER = r"(?<![\w.,:/-])\d{1,5}+[a-zA-Z]?(?:[/-]\d{1,5}+)?"
_STREET = re.compile(
    rf"""
      {_NUMBER},?{_BLANK}+(?:{_PLACE_WORD}{_BLANK}+){{1,4}}?
      (?:(?i:street|st|road|rd|avenue|ave|lane|boulevard|blvd|crescent|terrace)
        |(?:Drive|Dr|Way|Place|Pl|Close|Court|Ct|Square|Sq|Row|Gardens|Grove|Hill|Park|Walk|Mews
          |Quay|Parade|Highway|Hwy|Parkway|Circle))\b\.?(?!\w)
    | {_NUMBER},?{_BLANK}+(?:bis,?{_BLANK}+|ter,?{_BLANK}+)?
      (?i:rue|avenue|boulevard|chemin|impasse|allée|quai){_BLANK}+
      (?:(?i:de{_BLANK}la|de{_BLANK}l['’]|de|du|des|d['’]|la|le|les){_BLANK}*)?
      [^\W\d_]{{1,40}}+
    | (?<![\w-])[^\W\d_]{{2,40}}?(?i:straße|strasse|str\.|gasse|allee|weg|platz){_BLANK}+
      \d{{1,5}}+[a-z]?(?!\w)
    | (?<![\w-])(?:[^\W\d_]{{2,40}}+[ -])?(?:Straße|Strasse|Str\.|Allee|Platz){_BLANK}+
      \d{{1,5}}+[a-z]?(?!\w)
    | (?<![\w-])(?:[Cc]alle|[Aa]venida|Plaza|Paseo|Via|Viale|Piazza){_BLANK}+
      (?:{_WORD}{_BLANK}+){{0,3}}{_WORD},?{_BLANK}+\d{{1,5}}+(?!\w)
    """,
    re.VERBOSE,
)


def cut_private(
    text: str, kinds: Collection[Kind] = KINDS, *, mask: str = _MASK
) -> tuple[str, Counter[Kind]]:
    """Return a text with ``mask`` in place of what is of these kinds, and how many of each were.

    A text in which there is nothing to cut is returned as it is.
    """
    counts: Counter[Kind] = Counter()

    def cut(kind: Kind) -> str:
        counts[kind] += 1
        return mask

    def either(kind: Kind, found: re.Match[str]) -> str:
        return cut(kind) if kind in kinds else found[0]

    left = compose(text)
    # Electronic addresses first: nothing else may cut one in two and leave the rest.
    left = ADDRESS.sub(lambda found: either(_kind_of(found[0]), found), left)
    if "cards" in kinds:
        left = _CARD.sub(lambda found: cut("cards") if _is_card(found[0]) else found[0], left)
    if "addresses" in kinds:
        left = _STREET.sub(lambda _: cut("addresses"), left)
    if "names" in kinds:
        left = _without_names(left, lambda: cut("names"))
    if "numbers" in kinds or "links" in kinds:
        left = NOT_A_WORD.sub(
            lambda found: (
                found[0]
                if found.lastgroup is None
                else either("links" if found.lastgroup == "path" else "numbers", found)
            ),
            left,
        )
    return (left if counts else text), counts


def training_sentences(text: str, keep: Collection[Kind] = ()) -> list[list[str]]:
    """Return the sentences of a text to train or score on, each as lower-case words.

    As `split_sentences`, but what is private and not of a kind to ``keep`` is one ``<unk>``.
    """
    composed = compose(text)
    # Most texts have neither, and need no second reading.
    if not (_DIGIT.search(composed) or _TITLE.search(composed)):
        return split_sentences(text)
    # Numbers are left to `split_sentences`, which hides them in any case.
    kinds = [kind for kind in KINDS if kind not in keep and kind != "numbers"]
    return split_sentences(cut_private(text, kinds)[0])


def _kind_of(address: str) -> Kind:
    return "emails" if "@" in address and "://" not in address else "links"


def _is_card(written: str) -> bool:
    """Return whether the digits end in the check digit that a card's number has."""
    digits = [int(one) for one in written if one.isdigit()][::-1]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _without_names(text: str, cut: Callable[[], str]) -> str:
    pieces, done = [], 0
    for title in _TITLE.finditer(text):
        end = None if title.start() < done else _end_of_name(text, title)
        if end is not None:
            # The title stays, without its full stop, which would end a sentence.
            pieces += [text[done : title.start("gap")], cut()]
            done = end
    return "".join([*pieces, text[done:]])


def _end_of_name(text: str, title: re.Match[str]) -> int | None:
    """Return where the name behind a title ends; None if none is there."""
    at, end, count = title.end(), None, 0
    if _TITLE.match(text, at):
        return None  # "Frau Dr. Merkel": the name stands behind the last one.
    while count < _MOST_NAMES and (found := _NAME_WORD.match(text, at)):
        word = found[0]
        if word in _PARTICLES:
            gap = _GAP.match(text, found.end())
        elif _is_name(word, any_case=title["sure"] is not None and end is None):
            end, count = found.end(), count + 1
            gap = (_GAP_OF_INITIAL if len(word) == 1 else _GAP).match(text, end)
        else:
            break
        if gap is None:
            break
        at = gap.end()
    return end


def _is_name(word: str, *, any_case: bool) -> bool:
    small = word.lower().replace("’", "'")
    if small in _NEVER:
        return False
    return word[0].isupper() or (any_case and small not in _NEVER_IF_SMALL)
