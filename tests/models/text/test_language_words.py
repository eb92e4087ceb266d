"""The words of a language that ship go on where the list of a model ends."""

import pytest

from models.text.language_words import language_file, language_words
from models.text.vocabulary import shipped_vocabulary
from models.text.words import may_be_word, tokenise


def test_frequent_words_come_first_and_none_twice() -> None:
    words = language_words("en-GB")

    assert tuple(words[:9998]) == shipped_vocabulary().words[2:]
    assert len(words) == len(set(words)) > 50_000
    assert {"london", "oxford"} < set(words[9998:])
    assert all(may_be_word(word) and tokenise(word) == [word] for word in words[9998:])


def test_the_file_has_the_notice_that_must_go_with_copies() -> None:
    assert b"# Words of SCOWL" in language_file("en")
    assert b"Copyright 2000-2011 by Kevin Atkinson" in language_file("en")


@pytest.mark.parametrize("language", ["fr", "../en", "en/", ""])
def test_another_language_has_none(language: str) -> None:
    assert language_words(language) == []
    assert language_file(language) == b""
