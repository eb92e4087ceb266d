"""Make ``german-spelling.txt``: how German writes words of which wordfreq knows small letters only.

    python -P models/data/make_german_spelling.py FILE... > models/data/german-spelling.txt

The files are German prose; README.md names those that were read. Counted are words inside a
sentence, where no capital comes from its beginning. A word is listed with a capital if most text
writes it so, and with ß if hardly any text writes ss.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

_INSIDE = re.compile(r"(?<=[a-zäöüß,] )[A-Za-zÄÖÜäöüß]{2,}")
_LEAST_COUNT = 4
_MAJORITY = 2
# Texts from before 1996 write ß behind short vowels, too, where it is ss today.
_CLEARLY = 10
_OLD = re.compile("(?:fl|g|sch|schl|k)uß|[bg]iß|miß|wußt|mußt|laß|naß|faß|häß|freß|küß|schoß")
# Politeness writes these large.
_PRONOUNS = frozenset(["sie", "ihnen", "ihr", "ihre", "ihrem", "ihren", "ihrer", "ihres"])


def main(paths: Sequence[str]) -> int:
    """Print the spellings, in alphabetical order."""
    counts = count(Path(path).read_text(encoding="utf-8") for path in paths)
    sys.stdout.writelines(f"{word}\n" for word in sorted(spellings(counts)))
    return 0


def count(texts: Iterable[str]) -> Counter[str]:
    """Return how often each word stands inside a sentence, as written; acronyms are left out."""
    found = Counter[str]()
    for text in texts:
        found.update(_INSIDE.findall(" ".join(text.split())))
    return Counter({word: times for word, times in found.items() if word[1:].islower()})


def spellings(counts: Counter[str]) -> set[str]:
    """Return the words that are written otherwise than in small letters with ss."""
    small = Counter[str]()
    for word, times in counts.items():
        small[word.lower()] += times
    found = set()
    for word, times in small.items():
        large = counts[word.capitalize()]
        is_large = large > _MAJORITY * counts[word] and word not in _PRONOUNS
        has_eszett = "ß" in word
        if times < _LEAST_COUNT or not (is_large or has_eszett) or _OLD.search(word):
            continue
        if not has_eszett or times > _CLEARLY * small[word.replace("ß", "ss")]:
            found.add(word.capitalize() if is_large else word)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
