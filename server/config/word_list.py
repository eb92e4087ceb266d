"""The word list of a federation."""

from pathlib import Path

import msgspec

from models.plan.plan import VocabularySettings
from models.text.vocabulary import SHIPPED_NAME, Vocabulary, load_vocabulary, shipped_vocabulary


class WordListSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice of a public word list.

    Attributes:
        name: ``english-10k``, the list shipped with sotto. Either this or ``path``.
        path: Word list of the coordinator's own, one word a line with ``<unk>`` and ``<eos>``
            first; relative to the federation's file. It must be public: it travels to every device.
        size: Words used, ``<unk>`` and ``<eos>`` included.
    """

    name: str | None = None
    path: str | None = None
    size: int

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name or path, and not both")
        if self.name not in (None, SHIPPED_NAME):
            raise ValueError(f'name must be "{SHIPPED_NAME}", got "{self.name}"; or give path')
        if self.size < 3:
            raise ValueError(f"size must be >= 3, got {self.size}")

    def load(self) -> Vocabulary:
        """Return the list.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is no word list, or does not have ``size`` words.
        """
        if self.path is None:
            return shipped_vocabulary(self.size)
        vocabulary = load_vocabulary(Path(self.path))
        if len(vocabulary.words) != self.size:
            raise ValueError(
                f"{self.path} has {len(vocabulary.words)} words, but size is {self.size}; "
                "set size to the number of lines"
            )
        return vocabulary

    def describe(self, vocabulary: Vocabulary) -> VocabularySettings:
        """Return what a plan says about the list."""
        return VocabularySettings(
            name=self.name or Path(self.path or "").stem,
            size=len(vocabulary.words),
            sha256=vocabulary.sha256.hex(),
        )
