"""An exported keyboard in this process: numpy and onnxruntime, no torch."""

from pathlib import Path
from typing import Self

from export.commands.open_bundles import OpenKeyboard
from export.runtime.next_word import Suggestion


class Keyboard:
    """A keyboard's bundle that suggests words; ``load`` opens one."""

    def __init__(self, opened: OpenKeyboard) -> None:
        self._opened = opened

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        person: str | Path | None = None,
        authority: str | Path | None = None,
        offensive: bool = False,
    ) -> Self:
        """Open a bundle, folder or .zip, and check its digests and signature.

        Args:
            path: Bundle that ``sotto-export keyboard`` or ``Run.export`` made.
            person: File that ``sotto-export personal`` or ``sotto.personal`` made.
            authority: The federation's certificate, whose coordinator must have signed both.
            offensive: Whether words on the lists of offensive ones are suggested.

        Raises:
            ValueError: If the path is no keyboard's bundle, or the person's file does not fit.
            OSError: If a file cannot be read.
        """
        return cls(
            OpenKeyboard(
                Path(path),
                person=None if person is None else Path(person),
                authority=None if authority is None else Path(authority),
                offensive=offensive,
            )
        )

    def suggest(self, text: str, *, count: int = 3) -> list[Suggestion]:
        """Return the likeliest words for the end of a text, likeliest first.

        Each has a ``word`` and its ``probability`` as the next one. There are none where a number
        or an address is begun.

        Raises:
            ValueError: If the count is below 1.
        """
        return self._opened.suggest(text, count=count)

    def __repr__(self) -> str:
        manifest = self._opened.manifest
        return f"Keyboard(run {manifest.run[:8]}, round {manifest.round_number})"
