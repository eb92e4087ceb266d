"""What typed text becomes, and what must never become a word."""

import unicodedata
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.words import UNK_WORD, may_be_word, split_sentences, tokenise


def test_sentences_end_at_marks_and_line_ends_and_words_are_lower_case() -> None:
    text = "Hello there! How are you?\nFine...Thanks, and you"

    sentences = split_sentences(text)

    assert sentences == [
        ["hello", "there"],
        ["how", "are", "you"],
        ["fine"],
        ["thanks", "and", "you"],
    ]


def test_apostrophes_stay_inside_words_whatever_the_keyboard_writes() -> None:
    assert tokenise("Don't don’t 'em goin' it‘s") == ["don't", "don't", "em", "goin", "it's"]


@pytest.mark.parametrize(
    "hidden",
    [
        "5",
        "10:30",
        "3.50",
        "1,000,000",
        "+65-9123-4567",
        "4ever",
        "k7",
        "x²",
        "٣٤",
        "jane.doe@example.org",
        "jane@host",
        "https://example.org/a?b=c#d",
        "HTTP://EXAMPLE.ORG",
        "ftp://host",
        "www.example.org/jane",
        "jane-doe.example.com",
        "example.co/jane",
        "/home/jane/letter.txt",
        "~/letter",
        "<#>",
        "<EMAIL>",
        "<unk>",
        "jane_doe",
    ],
)
def test_numbers_addresses_paths_and_masks_become_unknown(hidden: str) -> None:
    words = tokenise(f"before {hidden} after")

    assert words == ["before", UNK_WORD, "after"]


def test_an_address_does_not_swallow_the_end_of_its_sentence() -> None:
    sentences = split_sentences("See http://example.org/a. Then write to jane@example.org! Bye")

    assert sentences == [["see", UNK_WORD], ["then", "write", "to", UNK_WORD], ["bye"]]


def test_the_letter_of_an_emoticon_is_no_word() -> None:
    assert tokenise("nice :p really ;-D =P") == ["nice", "really"]


def test_accents_are_composed_so_that_one_word_has_one_spelling() -> None:
    assert tokenise("cafe\u0301") == tokenise("caf\u00e9") == ["café"]


def test_no_run_of_marks_is_put_into_order_that_is_longer_than_any_language_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spy = Mock(wraps=unicodedata.normalize)
    monkeypatch.setattr(unicodedata, "normalize", spy)

    words = tokenise("cafe\u0301" + "\u0315\u0300" * 20_000 + "au" + "\U0001f600" * 50 + "lait")

    # The word's own 5 characters (its last is the first mark), 29 marks more, and what follows.
    assert [len(call.args[1]) for call in spy.call_args_list] == [5 + 29 + 2 + 50 + 4]
    first, *emoji, last = words
    assert (first[:4], first[-2:], len(first), last) == ("café", "au", 4 + 29 + 2, "lait")
    assert emoji == ["\U0001f600"] * 50


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),  # vowel signs stay on their letters
        ("তুমি কেমন", ["তুমি", "কেমন"]),
        ("می‌خواهم", ["می‌خواهم"]),  # a joiner inside a Persian word
        ("שָׁלוֹם עולם", ["שלום", "עולם"]),
        ("مَرْحَبًا مرحـبا", ["مرحبا", "مرحبا"]),
        ("İstanbul ISPARTA", ["istanbul", "isparta"]),
        ("n\u0304 n\u0304o", ["n\u0304", "n\u0304o"]),  # no letter has both
        ("p\u0308 Über", ["p\u0308", "über"]),
        ("Straße ὈΔΥΣΣΕΎΣ", ["straße", "ὀδυσσεύς"]),
    ],
)
def test_words_of_other_writing_are_read_whole(text: str, words: list[str]) -> None:
    assert tokenise(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ok👍good", ["ok", "👍", "good"]),
        ("👍🏽 ❤️ ☺", ["👍", "❤", "☺"]),  # a tone of skin and a form make no other word
        ("🤷🏽‍♀️ 🤷‍♂️", ["🤷", "🤷"]),
        ("👩‍👩‍👧 ❤️‍🔥", []),  # what is joined is another sign
        ("★ © →", []),
    ],
)
def test_an_emoji_is_a_word(text: str, words: list[str]) -> None:
    assert tokenise(text) == words


@given(st.text(max_size=200))
def test_no_text_yields_a_word_that_a_vocabulary_refuses(text: str) -> None:
    for word in tokenise(text):
        assert word == UNK_WORD or may_be_word(word)


@given(st.text(alphabet=st.sampled_from("aB é'’.!? \n-:/@<>_05pw#"), max_size=80))
def test_splitting_its_own_output_changes_nothing(text: str) -> None:
    sentences = split_sentences(text)

    written = "\n".join(" ".join(sentence) for sentence in sentences)

    assert split_sentences(written) == sentences


def test_a_very_long_text_without_spaces_is_split_in_time() -> None:
    # A quadratic pattern would take minutes for any of these.
    for piece in ("a", "a-", "a.", "a@", "a:", "_", "0", "0-", "<", "/", "'", ".!", "www."):
        split_sentences(piece * 20_000)
        may_be_word(piece * 20_000)


@pytest.mark.parametrize("word", ["", "b2", "two words", "a@b", "http://x", "www.x", "x.com", "²"])
def test_a_vocabulary_may_not_hold(word: str) -> None:
    assert not may_be_word(word)


@pytest.mark.parametrize("word", ["the", "n't", "@-@", "mr.", "<unk>", "u.s.", "naïve", "你好"])
def test_a_vocabulary_may_hold(word: str) -> None:
    assert may_be_word(word)
