"""``--language`` puts a list of the language in place of the settings' own."""

import pytest

from server.config.chosen_words import parse_languages, with_languages
from server.config.federation import ConfigError, parse_config, preset_text

TINY = preset_text("keyboard-tiny")


def test_the_list_of_a_language_takes_the_place_of_the_named_one() -> None:
    text = with_languages(TINY, ("de", "en"), "tiny")

    words = parse_config(text, "tiny").word_list
    assert (words.path, words.size, words.languages) == ("de-en-2k.txt", 2000, ("de", "en"))
    # Nothing else of the operator's text is touched.
    assert text.replace(
        'path = "de-en-2k.txt"\nlanguages = ["de","en"]', 'name = "english-10k"'
    ) == (TINY)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (TINY.replace('name = "english-10k"', 'path = "own.txt"'), "a list of your own"),
        (
            TINY.replace('[vocabulary]\nname = "english-10k"\nsize = 2000\n', "").replace(
                "seed = 1", 'seed = 1\nvocabulary = {name = "english-10k", size = 2000}'
            ),
            "written in a way that cannot be replaced",
        ),
    ],
)
def test_settings_that_cannot_be_changed_are_refused(settings: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        with_languages(settings, ("de",), "own")


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("de", ("de",)),
        ("de, en,de", ("de", "en")),
        ("en", ()),
        ("en-GB,en", ()),
        ("en,fr", ("en", "fr")),
    ],
)
def test_languages_are_read_and_english_alone_is_shipped(
    text: str, languages: tuple[str, ...]
) -> None:
    assert parse_languages(text) == languages
