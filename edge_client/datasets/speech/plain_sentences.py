"""Make plain English sentences for voices to read, from short everyday words in a few patterns.

Within a thousand sentences every word comes often enough to be learnt, and none comes twice.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")

_PEOPLE = (
    *("the teacher", "my brother", "a farmer", "the captain", "our neighbor", "the young girl"),
    *(
        "a quiet man",
        "the old woman",
        "her friend",
        "the doctor",
        "a hungry fox",
        "the white horse",
    ),
    *("some children", "the baker", "his sister", "a clever boy", "the sailor", "my uncle"),
)
_ACTIONS = (
    *("found", "painted", "carried", "watched", "lost", "bought", "opened", "moved", "forgot"),
    *("washed", "borrowed", "pulled", "dropped", "wanted", "kept", "showed us", "looked for"),
)
_THINGS = (
    *("a blue coat", "the heavy box", "some fresh bread", "a yellow flower", "the broken chair"),
    *("an apple", "the garden gate", "a silver spoon", "two small stones", "the long letter"),
    *("a wooden boat", "the green bottle", "three books", "a warm blanket", "the kitchen table"),
    *("an old clock", "the black umbrella", "a bag of sugar", "the music box", "a bright lamp"),
)
_PLACES = (
    *("near the river", "in the village", "under the bridge", "behind the house", "on the hill"),
    *("at the market", "by the sea", "in the dark forest", "across the street", "on the train"),
)
_TIMES = (
    *("yesterday", "this morning", "before dinner", "after the storm", "last winter", "at noon"),
    *("on friday", "every summer", "late at night", "in july"),
)


def plain_sentences(count: int, *, generator: torch.Generator) -> list[str]:
    """Return different sentences of five to fifteen words, with capital letter and period.

    Raises:
        ValueError: If ``count`` is not in [0, 10000].
    """
    if not 0 <= count <= 10_000:
        raise ValueError(f"count must be in [0, 10000], got {count}")
    found: dict[str, None] = {}
    while len(found) < count:
        found[_sentence(generator)] = None
    return list(found)


def _sentence(generator: torch.Generator) -> str:
    who, did, what = (_one(words, generator) for words in (_PEOPLE, _ACTIONS, _THINGS))
    where, when = _one(_PLACES, generator), _one(_TIMES, generator)
    pattern = _one((0, 1, 2, 3), generator)
    said = (
        f"{who} {did} {what} {where}",
        f"{when}, {who} {did} {what}",
        f"{who} {did} {what} {when}",
        f"{when}, {who} {did} {what} {where}",
    )[pattern]
    return f"{said[0].upper()}{said[1:]}."


def _one(items: Sequence[Item], generator: torch.Generator) -> Item:
    return items[int(torch.randint(len(items), (), generator=generator))]
