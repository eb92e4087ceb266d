"""Make the word list of a language from the frequencies that the package wordfreq carries.

Nothing of its data ships with sotto: an operator's machine makes a list when a federation is
founded or a start is learnt, the same from every installation of the pinned version. What wordfreq
does not say stands in the tables here: which words lean on the next one, and how German writes
capitals and ß (``german-spelling.txt``).

References:
    Robyn Speer, rspeer/wordfreq, doi:10.5281/zenodo.7199437.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType

from models.text.languages import UNPARTED_LANGUAGES, check_language_tag, primary
from models.text.letters import is_emoji
from models.text.vocabulary import Vocabulary
from models.text.words import EOS_WORD, UNK_WORD, as_read, split_sentences

NOTICE = """\
{name} was made by sotto from the data of wordfreq 3.1.1 by Robyn Speer
(https://doi.org/10.5281/zenodo.7199437), which is under Creative Commons Attribution-ShareAlike 4.0
(https://creativecommons.org/licenses/by-sa/4.0/); so is this list. Changed: the most frequent words
alone are kept, without their frequencies, split and spelt as sotto reads text. wordfreq's data in
turn comes from Wikipedia, OPUS OpenSubtitles 2018 (opensubtitles.org), SUBTLEX (freely available;
Marc Brysbaert et al.), Google Books Ngrams (http://books.google.com/ngrams), the Leeds Internet
Corpus, ParaCrawl, OSCAR, news, Twitter and Reddit. Pass this note on with the list.
"""

_ALIASES = {"bs": "sh", "hr": "sh", "no": "nb", "sr": "sh", "tl": "fil"}
# Its lists are of parts of words, not of what stands between blanks.
_PARTS_OF_WORDS = frozenset({"ko"})
# Words that lean on the next one, which wordfreq parts from it without their apostrophe.
_ELIDED = {
    "ca": "d l m n s t",
    "fr": "c d j jusqu l lorsqu m n puisqu qu quoiqu s t",
    "it": "all c d dall dell l m nell quell quest s sull t un",
}
_STAY = frozenset({"un"})  # words without an apostrophe as well
_FOLDED_END = re.compile("σ$")  # wordfreq folds the Greek letter that ends a word
EMOJI_COUNT = 100
_READ_ENTRIES = 100_000


class LanguageError(ValueError):
    """Raised when no list of a language can be made; the text says why and what to do."""


def list_name(languages: Sequence[str], size: int) -> str:
    """Return the name of a list, such as ``de-10k``, as a file is called and a plan says."""
    return f"{'-'.join(languages)}-{f'{size // 1000}k' if size % 1000 == 0 else size}"


def language_list(languages: Sequence[str], size: int) -> Vocabulary:
    """Return the most frequent words of a language, or of several in equal parts.

    The hundred most frequent emoji are among them.

    Args:
        languages: BCP 47 tags, such as ``de``.
        size: Words, ``<unk>`` and ``<eos>`` included.

    Raises:
        LanguageError: If a language has no list or not enough words, or wordfreq is missing.
    """
    counts: dict[str, float] = defaultdict(float)
    for language in languages:
        for word, frequency in _frequencies(language, size).items():
            counts[word] += frequency / len(languages)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    words = with_emoji(ranked, size - 2, min(EMOJI_COUNT, size // 10))
    if len(words) + 2 < size:
        raise LanguageError(
            f"the list of {', '.join(languages)} must have {size} words, but wordfreq has "
            f"{len(words)}; lower vocabulary.size and model.vocabulary_size"
        )
    return Vocabulary((UNK_WORD, EOS_WORD, *words))


def with_emoji(ranked: Sequence[str], size: int, emoji_count: int) -> list[str]:
    """Return the first of some words in their order, so many emoji among them if there are."""
    emoji = list(islice(filter(is_emoji, ranked), emoji_count))
    words = [word for word in ranked if not is_emoji(word)][: size - len(emoji)]
    kept = frozenset((*words, *emoji))
    return [word for word in ranked if word in kept]


def check_languages(languages: Sequence[str]) -> None:
    """Raise ``LanguageError`` for languages whose text sotto cannot read as words."""
    for tag in languages:
        try:
            check_language_tag(tag)
        except ValueError as error:
            raise LanguageError(str(error)) from None
        if (name := UNPARTED_LANGUAGES.get(primary(tag))) is not None:
            raise LanguageError(
                f"language must be one whose writing parts words by blanks, got {tag}: {name} has "
                "none, and a keyboard would take whole sentences for words"
            )


def _frequencies(language: str, size: int) -> Mapping[str, float]:
    """Return words as text is read, spelt as a strip shows them, with their frequencies.

    Far more than ``size`` where there are, until the emoji are among them.
    """
    code = _code(language)
    spelling = german_spelling() if code == "de" else {}
    elided = _ELIDED.get(code, "").split()
    found: dict[str, float] = defaultdict(float)
    emoji = set[str]()
    for entry, frequency in _entries(code):
        if len(found) > 2 * size and len(emoji) > EMOJI_COUNT:
            break
        if entry in elided:
            found[f"{entry}'"] += frequency
            if entry not in _STAY:
                continue
        match split_sentences(_FOLDED_END.sub("ς", entry)):
            case [[word]] if word != UNK_WORD:
                found[spelling.get(word, word)] += frequency
                emoji.update([word] if is_emoji(word) else [])
    return found


def _entries(code: str) -> Iterator[tuple[str, float]]:
    return islice(_wordfreq().get_frequency_dict(code).items(), _READ_ENTRIES)


def _code(language: str) -> str:
    """Return wordfreq's name of a language."""
    check_languages([language])
    code = _ALIASES.get(primary(language), primary(language))
    known = _wordfreq().available_languages().keys() - UNPARTED_LANGUAGES.keys() - _PARTS_OF_WORDS
    if code not in known:
        raise LanguageError(
            f"language must be one of {', '.join(sorted(known))}, of which wordfreq has words "
            f"between blanks, got {language}; or name a list of your own as [vocabulary] path"
        )
    return code


def _wordfreq() -> ModuleType:
    try:
        import wordfreq
    except ModuleNotFoundError:
        raise LanguageError(
            "a list of another language than English needs the package wordfreq; install "
            "sotto[languages]"
        ) from None
    return wordfreq


@functools.cache
def german_spelling() -> dict[str, str]:
    """Return how German writes a word, by its small letters with ss for ß, as wordfreq has it."""
    lines = Path(__file__).with_name("german-spelling.txt").read_text(encoding="utf-8").split()
    return {as_read(word).replace("ß", "ss"): word for word in lines}
