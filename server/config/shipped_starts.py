"""The starting models that ship with sotto, by the names that ``start_from`` has for them.

A name stands for a file of the package, whatever folder the settings lie in; a path of the same
name is written with a folder before it, such as ``./english``.
"""

from pathlib import Path

import models.data

SHIPPED_STARTS = ("english", "voices")
NO_START = "none"
"""The name of no start at all, by which a run goes without the start of its preset."""


def shipped_start(start_from: str) -> Path | None:
    """Return the file of a shipped start, or None if the text is a path of the operator's own."""
    if start_from not in SHIPPED_STARTS:
        return None
    return Path(models.data.__file__).parent / f"{start_from}-start.sotto"


def rooted_start(start_from: str | None, folder: Path) -> str | None:
    """Return a start whose path, if it is one, is taken from a folder."""
    if start_from is None or start_from in SHIPPED_STARTS:
        return start_from
    return str(folder / start_from)
