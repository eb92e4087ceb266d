"""The word list of a federation."""

from pathlib import Path

import msgspec

from models.data.language_lists import check_languages
from models.plan.plan import VocabularySettings
from models.text.letters import is_unparted
from models.text.vocabulary import (
    NEVER_SUGGESTED,
    SHIPPED_NAME,
    Vocabulary,
    load_vocabulary,
    shipped_vocabulary,
)
from models.text.words import compose

# Shorter lists may be in alphabetical order by chance.
_LEAST_RANKED = 100


class WordListSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice of a public word list.

    Attributes:
        name: ``english-10k``, the list shipped with sotto. Either this or ``path``.
        path: Word list of the coordinator's own, one word a line with ``<unk>`` and ``<eos>``
            first, the most frequent next; relative to the federation's file. It must be public: it
            travels to every device.
        size: Words used, ``<unk>`` and ``<eos>`` included.
        languages: BCP 47 tags of the words at ``path``: whose capitals, keys and blocklists a strip
            goes by.
    """

    name: str | None = None
    path: str | None = None
    size: int
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name or path, and not both")
        if self.name not in (None, SHIPPED_NAME):
            raise ValueError(f'name must be "{SHIPPED_NAME}", got "{self.name}"; or give path')
        if self.size < 3:
            raise ValueError(f"size must be >= 3, got {self.size}")
        if self.name is not None and self.languages:
            raise ValueError(f'languages must be absent with name "{self.name}", which has its own')
        check_languages(self.languages)

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
        _check_typed(vocabulary, self.path)
        return vocabulary

    def describe(self, vocabulary: Vocabulary) -> VocabularySettings:
        """Return what a plan says about the list."""
        return VocabularySettings(
            name=self.name or Path(self.path or "").stem,
            size=len(vocabulary.words),
            sha256=vocabulary.sha256.hex(),
            languages=self.languages or msgspec.UNSET,
        )


def _check_typed(vocabulary: Vocabulary, path: str) -> None:
    """Refuse a list whose words no typed text could find, or whose order says nothing."""
    words = [word for row, word in enumerate(vocabulary.words) if row not in NEVER_SUGGESTED]
    for row, word in enumerate(words, start=len(NEVER_SUGGESTED) + 1):
        if is_unparted(word):
            raise ValueError(
                f"line {row} of {path} must be of writing that parts words by blanks, which "
                "Chinese, Japanese and Thai do not: text in it would be one word a sentence"
            )
        if compose(word) != word:
            raise ValueError(
                f"line {row} of {path} must have letter and accent as one character (Unicode NFC)"
            )
    if len(words) >= _LEAST_RANKED and words == sorted(words):
        raise ValueError(
            f"{path} must have its most frequent words first, but is in alphabetical order: a "
            "strip takes a word's place for how common it is"
        )
