"""Read the shipped lists of words that are never suggested, by language."""

import functools
from collections.abc import Iterable
from pathlib import Path

_LISTS = Path(__file__).parent / "lists"
_ALSO = {"nb": "no", "nn": "no", "tl": "fil"}


def blocked_words(languages: Iterable[str]) -> frozenset[str]:
    """Return the words, lower-case, of the languages' lists; a language without a list has none.

    Args:
        languages: BCP 47 tags, such as ``en-GB``; of each the language alone counts.
    """
    wanted = {tag.partition("-")[0].lower() for tag in languages}
    lists = _lists()
    return frozenset().union(*(lists.get(_ALSO.get(one, one), frozenset()) for one in wanted))


@functools.cache
def _lists() -> dict[str, frozenset[str]]:
    # By the files that there are: a tag comes from a bundle and must never name another file.
    return {
        path.stem: frozenset(path.read_text(encoding="utf-8").split())
        for path in _LISTS.glob("*.txt")
    }
