"""Write the word list of a language into the text of settings, as ``init --language`` says."""

import re
from collections.abc import Sequence

import msgspec

from models.data.language_lists import check_languages, list_name
from models.text.languages import primary
from server.config.federation import ConfigError, parse_config
from server.config.word_list import WordListSettings

_SHIPPED_LANGUAGE = "en"
_TABLE = re.compile(r"^\[vocabulary\][^\n]*\n(?:(?!\[).*\n?)*", re.MULTILINE)
_NAME = re.compile(r"^name[ \t]*=.*$", re.MULTILINE)


def named_languages(text: str) -> tuple[str, ...]:
    """Return the tags of ``de`` or ``de, en``, each once.

    Raises:
        LanguageError: If a part is no language, or one whose text sotto cannot read as words.
    """
    languages = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    check_languages(languages)
    return languages


def parse_languages(text: str) -> tuple[str, ...]:
    """Read ``de`` or ``de,en``; none for English alone, whose list and start ship with sotto.

    Raises:
        LanguageError: If a part is no language, or one whose text sotto cannot read as words.
    """
    languages = named_languages(text)
    return () if all(primary(tag) == _SHIPPED_LANGUAGE for tag in languages) else languages


def with_languages(settings: str, languages: Sequence[str], source: str) -> str:
    """Return settings whose word list is that of some languages, beside them in their folder.

    ``source`` names the settings in error messages.

    Raises:
        ConfigError: If the settings cannot be used, have no words or a list of their own, or are
            written in a way that this cannot change safely.
    """
    before = parse_config(settings, source)
    words = before.vocabulary
    if words is None or words.path is not None:
        raise ConfigError(
            f"{source}: --language needs a [vocabulary] with a name, which it replaces; leave it "
            "out where there are no words, or a list of your own"
        )
    chosen = WordListSettings(
        path=f"{list_name(languages, words.size)}.txt", size=words.size, languages=tuple(languages)
    )
    lines = f'path = "{chosen.path}"\nlanguages = {msgspec.json.encode(languages).decode()}'
    text = _TABLE.sub(lambda table: _NAME.sub(lines, table[0], count=1), settings, count=1)
    try:
        changed = parse_config(text, source) == msgspec.structs.replace(before, vocabulary=chosen)
    except ConfigError:
        changed = False
    if not changed:
        raise ConfigError(
            f"{source}: [vocabulary] is written in a way that cannot be replaced; write its name "
            "on a line of its own in a table of its own"
        )
    return text
