"""A command's answer, for people and for scripts."""

from typing import NamedTuple

Figure = str | float | int | bool | list[float] | None


class Answer(NamedTuple):
    """One answer: figures for ``--json`` and lines for people.

    A figure is None if it does not apply or has no bound.
    """

    figures: dict[str, Figure]
    lines: list[str]


def in_words(count: int, thing: str) -> str:
    """Return a count with its noun: ``1 round``, ``2,000 rounds``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
