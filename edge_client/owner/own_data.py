"""Look at a person's own text before a round does: how much, in which language, and what is cut.

Nothing is changed, removed or sent, and no finding holds a word of the text.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.datasets.text_set import LEAST_TO_SPLIT, DatasetError, split_in_order
from edge_client.owner.finding import Finding, counted
from edge_client.owner.typed_text import StoredText, TextSettings, read_texts
from models.text.languages import is_unparted, likely_language, scripts, scripts_told
from models.text.private_text import KINDS, Kind, cut_private, training_sentences
from models.text.vocabulary import Vocabulary
from models.text.words import UNK_WORD

_NONE = "nothing"


@dataclass(frozen=True)
class _OwnWords:
    """What a person's text becomes: all its words, and how many of each were cut."""

    texts: Sequence[StoredText]
    sentence_count: int
    words: Counter[str]
    cut: Counter[Kind]

    @property
    def open_words(self) -> Counter[str]:
        """Return the words that were not cut."""
        return Counter({word: count for word, count in self.words.items() if word != UNK_WORD})


def examine_data(
    data: Path, limits: TextSettings, words: Vocabulary, *, list_name: str, now: float
) -> list[Finding]:
    """Return what there is to tell about the text at ``data``, by the list of ``list_name``.

    ``limits`` are the owner's settings of text, ``now`` is seconds since 1970 UTC.
    """
    try:
        texts = read_texts(data, limits, now=now)
    except (DatasetError, OSError) as error:
        return [Finding("text", False, str(error))]
    own = _read(texts, limits)
    return [
        _amount(own),
        _language(own),
        _known(own, words, list_name),
        Finding("private", True, _cut_told(own.cut, limits)),
        _enough(own, texts, limits, words),
    ]


def _read(texts: Sequence[StoredText], limits: TextSettings) -> _OwnWords:
    sentence_count, words, cut = 0, Counter[str](), Counter[Kind]()
    kinds = [kind for kind in KINDS if kind not in limits.keep]
    for stored in texts:
        cut.update(cut_private(stored.text, kinds)[1])
        for sentence in training_sentences(stored.text, limits.keep):
            sentence_count += 1
            words.update(sentence)
    return _OwnWords(texts, sentence_count, words, cut)


def _amount(own: _OwnWords) -> Finding:
    train, *held_out = split_in_order(own.texts)
    told = (
        f"{counted(len(own.texts), 'text')}, {counted(own.sentence_count, 'sentence')}, "
        f"{counted(own.words.total(), 'word')}: {counted(len(train), 'text')} to train on, "
        f"{sum(map(len, held_out)):,} of the newest to score on"
    )
    return Finding("text", bool(own.words), told)


def _language(own: _OwnWords) -> Finding:
    typed = own.open_words
    found = likely_language(typed)
    language = "unclear" if found is None else f"{found}, a guess by its commonest words"
    shares = scripts(typed)
    if not shares:
        return Finding("language", True, "no word to tell it by")
    told = f"{language}; letters: {scripts_told(typed)}"
    is_joined = is_unparted(typed)
    if is_joined:
        told += (
            "; this writing has no blanks between words, so that whole sentences are read as one "
            "word: sotto cannot learn from it"
        )
    return Finding("language", not is_joined, told)


def _known(own: _OwnWords, words: Vocabulary, list_name: str) -> Finding:
    open_count = own.open_words.total()
    known = sum(count for word, count in own.open_words.items() if _is_known(word, words))
    if not open_count:
        return Finding("known words", False, "the text has no words, or only such as are cut")
    told = f"{list_name} has {known:,} of {open_count:,} words ({known / open_count:.1%})"
    if not known and not is_unparted(own.open_words):
        told += (
            f"; the text's letters are {scripts_told(own.open_words)}: take part in a federation "
            "whose word list is of the text's language"
        )
    return Finding("known words", known > 0, told)


def _is_known(word: str, words: Vocabulary) -> bool:
    parts = words.parts([word])
    return bool(parts) and all(part in words for part in parts)


def _cut_told(cut: Counter[Kind], limits: TextSettings) -> str:
    counts = ", ".join(f"{kind} {cut[kind]:,}" for kind in KINDS if cut[kind]) or _NONE
    kept = f"; left in by keep: {', '.join(limits.keep)}" if limits.keep else ""
    return f"cut from training: {counts}{kept}"


def _enough(
    own: _OwnWords, texts: Sequence[StoredText], limits: TextSettings, words: Vocabulary
) -> Finding:
    train, *_ = split_in_order(texts)
    trains = any(
        word in words and word != UNK_WORD
        for stored in train
        for sentence in training_sentences(stored.text, limits.keep)
        for word in words.parts(sentence)
    )
    if not trains:
        return Finding("enough", False, "no: no text to train on has a word of the word list")
    if len(texts) < LEAST_TO_SPLIT:
        return Finding(
            "enough",
            True,
            f"to train on, yes; fewer than {LEAST_TO_SPLIT} texts are not scored, so plans of kind "
            "evaluate are refused",
        )
    return Finding("enough", True, "to train on and to score on")
