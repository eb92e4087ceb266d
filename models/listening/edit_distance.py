"""Count reading errors: the fewest edits that turn the written text into what was read.

References:
    Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966.
"""

from collections.abc import Sequence

import msgspec


class ReadingErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Edits of some readings; counts add up, and are divided once at the end.

    Attributes:
        edits: Characters put in, taken out or replaced.
        characters: Characters that were to be read.
    """

    edits: int = 0
    characters: int = 0

    def __add__(self, other: "ReadingErrors") -> "ReadingErrors":
        return ReadingErrors(
            edits=self.edits + other.edits, characters=self.characters + other.characters
        )

    @property
    def rate(self) -> float:
        """Return edits per character; 0 is perfect, and 1 may be passed."""
        if self.characters < 1:
            raise ValueError("an error rate needs at least one character to be read, got 0")
        return self.edits / self.characters


def reading_errors(written: str, read: str) -> ReadingErrors:
    """Return the errors of one reading."""
    return ReadingErrors(edits=edit_distance(written, read), characters=len(written))


def edit_distance(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the least number of elements to put in, take out or replace, each counted once."""
    above = list(range(len(second) + 1))
    for row, element in enumerate(first, start=1):
        line = [row]
        for column, other in enumerate(second, start=1):
            replaced = above[column - 1] + (element != other)
            line.append(min(replaced, above[column] + 1, line[-1] + 1))
        above = line
    return above[-1]
