"""Word lists of an operator's own that no keyboard could use are refused by their line."""

from pathlib import Path

import pytest

from server.config.word_list import WordListSettings


def listed(folder: Path, words: list[str]) -> WordListSettings:
    path = folder / "own.txt"
    path.write_text("".join(f"{word}\n" for word in ("<unk>", "<eos>", *words)))
    return WordListSettings(path=str(path), size=len(words) + 2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["we", "看海"], "line 4 of .*own.txt must be of writing that parts words by blanks"),
        (["cafe\u0301"], r"line 3 of .*own.txt must have letter and accent as one character"),
        (["we", "see", "we"], "line 5 of a vocabulary repeats 'we'"),
        ([f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"], "is in alphabetical order"),
    ],
)
def test_a_list_is_refused_for_what_it_holds(tmp_path: Path, words: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        listed(tmp_path, words).load()


def test_a_short_list_may_be_in_order_by_chance(tmp_path: Path) -> None:
    assert len(listed(tmp_path, ["a", "b", "Haus"]).load()) == 5


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "english-10k", "languages": ("de",)}, "languages must be absent with name"),
        ({"path": "x", "languages": ("deutsch",)}, "must be a BCP 47 tag"),
        ({"path": "x", "languages": ("ja",)}, "Japanese has none"),
    ],
)
def test_languages_that_make_no_sense_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        WordListSettings(size=10, **settings)  # type: ignore[arg-type]
