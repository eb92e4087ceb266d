"""The form of every data set for character models: each user's whole text, oldest first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CharacterText:
    """One data set.

    Attributes:
        texts: Text of each user, in the order it was said or typed.
        notes: Things left out and why, one line each.
    """

    texts: Mapping[str, str]
    notes: tuple[str, ...] = ()


CharacterLoader = Callable[[Path | None], CharacterText]
