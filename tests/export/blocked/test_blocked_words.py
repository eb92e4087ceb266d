"""The shipped lists of words that are never suggested."""

from pathlib import Path

import pytest

import export.blocked
from export.blocked.blocked_words import blocked_words
from models.text.words import split_sentences

LISTS = sorted((Path(export.blocked.__file__).parent / "lists").glob("*.txt"))


@pytest.mark.parametrize(
    ("tags", "word"),
    [(["en"], "shit"), (["en-GB"], "shit"), (["fr", "de"], "scheiße"), (["nb"], "faen")],
)
def test_a_language_has_its_list_whatever_its_region(tags: list[str], word: str) -> None:
    assert word in blocked_words(tags)


@pytest.mark.parametrize("tags", [[], [""], ["xx"], ["../lists/en"], ["e"]])
def test_a_language_without_a_list_blocks_nothing(tags: list[str]) -> None:
    assert blocked_words(tags) == frozenset()


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_entry_is_one_word_that_a_strip_could_show(path: Path) -> None:
    words = path.read_text(encoding="utf-8").split("\n")[:-1]

    assert words == sorted(set(words))
    assert all(split_sentences(word) == [[word]] for word in words)
