"""Hold what a command answers, for people and for scripts."""

from typing import NamedTuple

Figure = str | float | int | bool | None


class Answer(NamedTuple):
    """Hold one answer in two forms.

    Attributes:
        figures: For ``--json``; None where a figure does not apply or nothing bounds it.
        lines: For people.
    """

    figures: dict[str, Figure]
    lines: list[str]


def in_words(count: int, thing: str) -> str:
    """Return a count with its noun: ``1 round``, ``2,000 rounds``."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
