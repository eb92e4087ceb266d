"""The form of every data set for character models: each user's whole text, oldest first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CharacterText:
    """Each user's text, oldest first; ``notes`` say what was left out and why, one line each."""

    texts: Mapping[str, str]
    notes: tuple[str, ...] = ()


CharacterLoader = Callable[[Path | None], CharacterText]
