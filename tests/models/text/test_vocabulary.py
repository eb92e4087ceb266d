"""Word lists: what they must hold, what they hash to, and what the shipped one covers."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.vocabulary import (
    EOS,
    UNK,
    Vocabulary,
    VocabularyError,
    build_vocabulary,
    decode_vocabulary,
    load_vocabulary,
    shipped_vocabulary,
)
from models.text.words import may_be_word


def test_unknown_words_are_row_0_and_sentences_end_with_row_1() -> None:
    vocabulary = Vocabulary(("<unk>", "<eos>", "we", "sing"))

    stream = vocabulary.token_stream([["we", "sing"], ["we", "hum"], []])

    assert list(stream) == [2, 3, EOS, 2, UNK, EOS, EOS]
    assert stream.itemsize == 8


def test_the_digest_is_that_of_the_list_one_word_a_line() -> None:
    vocabulary = Vocabulary(("<unk>", "<eos>", "café"))

    assert vocabulary.sha256 == hashlib.sha256("<unk>\n<eos>\ncafé\n".encode()).digest()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("<eos>\n<unk>\na\n", "line 1 of a vocabulary must be <unk>"),
        ("<unk>\na\nb\n", "line 2 of a vocabulary must be <eos>"),
        ("<unk>\n<eos>\n", "at least one word"),
        ("<unk>\n<eos>\na\nb\na\n", "line 5 of a vocabulary repeats 'a'"),
        ("<unk>\n<eos>\nb2\n", "line 3 of a vocabulary must be a word without digits"),
        ("<unk>\n<eos>\na\n\nb\n", "line 4 of a vocabulary must be a word"),
        ("<unk>\n<eos>\njane@example.org\n", "line 3"),
        ("<unk>\r\n<eos>\r\na\r\n", "line 1"),
        ("", "line 1"),
    ],
)
def test_a_list_that_breaks_a_rule_is_refused_with_its_line(
    tmp_path: Path, lines: str, said: str
) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(lines.encode())

    with pytest.raises(VocabularyError, match=said) as refused:
        load_vocabulary(path)

    assert str(path) in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"<unk>\n<eos>\n\xff\xfe\n")

    with pytest.raises(VocabularyError, match="cannot be read"):
        load_vocabulary(tmp_path / "missing")
    with pytest.raises(VocabularyError, match="UTF-8"):
        load_vocabulary(binary)


@given(st.lists(st.text("abcé'", min_size=1, max_size=6), min_size=1, max_size=30, unique=True))
def test_what_is_written_is_read_back(words: list[str]) -> None:
    vocabulary = Vocabulary(("<unk>", "<eos>", *words))

    assert decode_vocabulary(vocabulary.to_bytes()) == vocabulary


def test_frequent_words_come_first_equal_ones_by_alphabet_and_hidden_ones_never() -> None:
    sentences = [["b", "a", "c"], ["c", "1950s", "<unk>"], ["c", "a", "b", "x@y"], ["d"]]

    vocabulary = build_vocabulary(sentences, size=5)

    assert vocabulary.words == ("<unk>", "<eos>", "c", "a", "b")


def test_a_list_shows_words_with_capitals_that_typed_text_finds_without() -> None:
    german = Vocabulary(("<unk>", "<eos>", "der", "Haus", "Straße", "weg", "Weg"))

    assert german.encode(["haus", "Haus", "straße", "strasse"]) == [3, 3, 4, 4]
    # "weg" is a word of its own, so "Weg" is found as it is written.
    assert german.typed == ("<unk>", "<eos>", "der", "haus", "straße", "weg", "Weg")
    assert decode_vocabulary(german.to_bytes()).words == german.words


def test_a_turkish_capital_finds_the_word_with_the_dotless_letter() -> None:
    turkish = Vocabulary(("<unk>", "<eos>", "ılık", "kin", "kın"))

    # "Ilık" and "ILIK" are lower-cased to these; "kin" is a word itself.
    assert turkish.encode(["ılık", "ilik", "kin", "kın"]) == [2, 2, 3, 4]


def test_a_word_that_leans_on_the_next_is_read_apart_from_it() -> None:
    french = Vocabulary(("<unk>", "<eos>", "l'", "qu'", "heure", "il", "aujourd'hui", "d'"))

    parts = french.parts(["l'heure", "qu'il", "d'aujourd'hui", "aujourd'hui", "l'xyz", "o'clock"])

    assert parts == [
        *("l'", "heure", "qu'", "il", "d'", "aujourd'hui", "aujourd'hui", "l'", "xyz", "o'clock")
    ]
    assert [french.elision(begun) for begun in ("l'he", "l'", "aujourd'h", "il")] == [
        *(("l'", "he"), ("l'", ""), ("", "aujourd'h"), ("", "il"))
    ]


def test_unlisted_emoji_and_writing_without_blanks_leave_no_trace() -> None:
    vocabulary = Vocabulary(("<unk>", "<eos>", "hi", "👍"))

    stream = vocabulary.token_stream([["hi", "😀", "👍"], ["😀", "我们看海"], ["hi", "zzz"], []])

    assert list(stream) == [2, 3, EOS, 2, UNK, EOS, EOS]


def test_published_tokens_are_taken_as_they_are() -> None:
    counted = build_vocabulary([["The", "the", "l'", "Paris", "♥"]])

    assert counted.encode(["The", "the", "paris"]) == [
        *(counted.words.index("The"), counted.words.index("the"), UNK)
    ]
    assert counted.parts(["l'heure", "❤", "海"]) == ["l'heure", "❤", "海"]


def test_without_a_size_every_word_is_taken() -> None:
    assert len(build_vocabulary([["b", "a"], ["c"]])) == 5


def test_text_without_any_word_builds_no_vocabulary() -> None:
    with pytest.raises(VocabularyError, match="at least one word"):
        build_vocabulary([["<unk>", "7"]])


def test_the_shipped_list_has_10000_words_and_no_digits() -> None:
    vocabulary = shipped_vocabulary()

    assert len(vocabulary) == len(set(vocabulary.words)) == 10_000
    assert vocabulary.words[:2] == ("<unk>", "<eos>")
    assert all(word == word.lower() and may_be_word(word) for word in vocabulary.words)


def test_the_shipped_list_knows_what_people_type_but_not_whom() -> None:
    vocabulary = shipped_vocabulary()

    for word in [
        "i'm",
        "don't",
        "lol",
        "thanks",
        "tonight",
        "dinner",
        "love",
        "u",
        "ur",
        "monday",
        "english",
    ]:
        assert word in vocabulary
    # The busiest nickname and the bot of the chat that the frequencies come from.
    for word in ("actionparsnip", "ubottu", "john", "seveas"):
        assert word not in vocabulary


def test_a_shipped_list_is_cut_from_the_front() -> None:
    assert shipped_vocabulary(100).words == shipped_vocabulary().words[:100]
    with pytest.raises(VocabularyError, match="size must be <= 10000, got 10001"):
        shipped_vocabulary(10_001)
    with pytest.raises(VocabularyError, match="at least one word"):
        shipped_vocabulary(2)


def test_words_load_without_torch() -> None:
    program = (
        "import sys; "
        "import models.text.vocabulary as v; v.shipped_vocabulary(); print('torch' in sys.modules)"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "False"
