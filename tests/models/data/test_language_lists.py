"""Word lists of other languages, from the frequencies of a package that stands aside here."""

import sys
from types import ModuleType

import pytest

from models.data.language_lists import (
    LanguageError,
    german_spelling,
    language_list,
    list_name,
    with_emoji,
)
from models.text.vocabulary import Vocabulary

ENTRIES = {
    "de": "die gross strasse 2022 e-mail haus muss weiss 👍🏻 👍 jane@example.org leben gibt's",
    "fr": "de l un heure qu aujourd'hui c",
    "it": "un l acqua di",
    "el": "τησ και σασ",
    "ar": "في من",
    "ko": "은",
    "zh": "的",
}


@pytest.fixture(autouse=True)
def frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for wordfreq, whose lists take seconds: entries by falling frequency."""
    stand_in = ModuleType("wordfreq")
    stand_in.available_languages = lambda: dict.fromkeys(ENTRIES)  # type: ignore[attr-defined]
    stand_in.get_frequency_dict = lambda code: {  # type: ignore[attr-defined]
        entry: 2.0**-rank for rank, entry in enumerate(ENTRIES[code].split())
    }
    monkeypatch.setitem(sys.modules, "wordfreq", stand_in)


def words(*languages: str, size: int) -> tuple[str, ...]:
    return language_list(languages, size).words[2:]


def test_a_list_has_the_words_that_text_is_read_in_spelt_as_the_language_does() -> None:
    # Out stay the number, the address and what is parted by its hyphen; both thumbs are one word.
    assert words("de", size=10) == (
        *("die", "groß", "Straße", "Haus", "muss", "weiß", "👍", "Leben"),
    )


def test_what_leans_on_the_next_word_gets_its_apostrophe() -> None:
    assert words("fr", size=9) == ("de", "l'", "un", "heure", "qu'", "aujourd'hui", "c'")
    assert words("it", size=7) == ("un", "un'", "l'", "acqua", "di")


def test_a_greek_word_ends_in_its_own_letter() -> None:
    assert words("el-GR", size=5) == ("της", "και", "σας")


def test_two_languages_share_a_list_in_equal_parts() -> None:
    # French has "de" 1, "l'" 1/2, "un" 1/4; Italian has "un" and "un'" 1, "l'" 1/2. Halves of the
    # sums are 5/8 for "un" and 1/2 for the others, which stand by alphabet.
    assert words("fr", "it", size=6) == ("un", "de", "l'", "un'")


@pytest.mark.parametrize(
    ("language", "told"),
    [
        ("zh-Hant", "got zh-Hant: Chinese has none, and a keyboard would take whole sentences"),
        ("th", "got th: Thai has none"),
        ("ko", "must be one of ar, de, el, fr, it, of which wordfreq has words between blanks"),
        ("xx", "got xx; or name a list of your own as [vocabulary] path"),
        ("German", "must be a BCP 47 tag such as en or pt-BR, got 'German'"),
        ("ar", "the list of ar must have 9 words, but wordfreq has 2; lower vocabulary.size"),
    ],
)
def test_a_language_without_a_list_is_refused_in_one_line(language: str, told: str) -> None:
    with pytest.raises(LanguageError) as refused:
        words(language, size=9)

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)

    with pytest.raises(LanguageError, match=r"install sotto\[languages\]"):
        language_list(["de"], 5)


def test_a_list_is_called_by_its_languages_and_size() -> None:
    assert [list_name(("de",), 10_000), list_name(("de", "en"), 2500)] == ["de-10k", "de-en-2500"]


def test_german_spelling_is_a_list_of_words_that_text_finds() -> None:
    spelling = german_spelling()

    assert spelling["strasse"] == "Straße"
    assert {"die", "muss", "dass", "sie"}.isdisjoint(spelling)
    found = Vocabulary(("<unk>", "<eos>", *spelling.values())).encode(spelling)
    assert found == list(range(2, len(spelling) + 2))


def test_emoji_take_the_places_of_the_rarest_words() -> None:
    ranked = ["a", "😂", "b", "c", "d", "👍", "😢"]

    assert with_emoji(ranked, 4, 2) == ["a", "😂", "b", "👍"]
    assert with_emoji(ranked, 9, 9) == ranked
