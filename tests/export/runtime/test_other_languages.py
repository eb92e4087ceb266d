"""The strip in other languages than English: elided words, capitals, dots, scripts, emoji."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from export.runtime.casing import cased
from export.runtime.next_word import NextWords
from export.runtime.strip import Keyboard, Strip
from export.runtime.word_graph import Prediction, State
from models.text.vocabulary import Vocabulary

FRENCH = ("l'", "j'", "heure", "homme", "ai", "aujourd'hui", "été", "👍")
GERMAN = ("das", "Haus", "Häuser", "hat", "groß")
BOTH = (*GERMAN, "the", "house", "don't")


class Constant:
    """A model that expects a list's words in their order wherever it is asked."""

    context_size: int | None = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary_size = len(vocabulary)
        self.read: list[int] = []

    def fresh_state(self, batch_size: int = 1) -> State:
        return {}

    def step(self, tokens: NDArray[np.int64], state: State, *, k: int) -> Prediction:
        self.read = tokens[0].tolist()
        scores = -np.log(np.arange(2, self.vocabulary_size + 2, dtype=np.float32))
        scores[0] = -9.0
        ranked = np.argsort(-scores, kind="stable")[:k]
        return Prediction(ranked[None], scores[ranked][None], scores[None], state)


def keyboard(words: Sequence[str], *languages: str) -> Keyboard:
    vocabulary = Vocabulary(("<unk>", "<eos>", *words))
    return Keyboard(Constant(vocabulary), vocabulary, languages=languages)


def shown(strip: Strip) -> list[str]:
    """Return what is shown, best first."""
    slots = (strip.centre, strip.left, strip.right)
    return [slot.text for slot in slots if slot is not None]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("je vois l'ho", "l'homme"),
        ("je vois l’ho", "l’homme"),  # as it was typed
        ("L'", "L'heure"),  # after it, any word that is not elided itself may follow
        ("L'HO", "L'HOMME"),
        ("l'huree", "l'heure"),  # slips behind it are mended
        ("jai", "j'ai"),  # and so is its own apostrophe
        ("aujourd'h", "aujourd'hui"),
        ("ete", "été"),
    ],
)
def test_french_words_are_suggested_behind_what_is_elided(text: str, first: str) -> None:
    assert first in shown(keyboard(FRENCH, "fr").suggest(text))


def test_the_model_reads_what_is_elided_as_a_word_and_no_unlisted_emoji() -> None:
    vocabulary = Vocabulary(("<unk>", "<eos>", *FRENCH))
    model = Constant(vocabulary)

    reading = NextWords(model, vocabulary).read("😀😀. Aujourd'hui 👍😀 l'ho")

    assert model.read == [1, *vocabulary.encode(["aujourd'hui", "👍", "l'"])]
    assert reading is not None
    assert (reading.begun, reading.head) == ("ho", "l'")


@pytest.mark.parametrize(
    ("text", "first"), [("das ha", "Haus"), ("das Hä", "Häuser"), ("so gross", "groß")]
)
def test_german_words_are_shown_as_german_writes_them(text: str, first: str) -> None:
    assert first in shown(keyboard(GERMAN, "de").suggest(text))


def test_a_slipped_german_noun_is_mended_inside_a_sentence_though_it_is_large() -> None:
    strip = keyboard(GERMAN, "de").suggest("das Häusr")

    assert strip.centre is not None
    assert (strip.centre.text, strip.centre.kind) == ("Häuser", "correction")


def test_a_blank_parts_no_german_compound() -> None:
    strip = keyboard(GERMAN, "de").suggest("das Haushat")

    assert "Haus hat" in shown(strip)  # for a tap
    assert strip.centre is None or strip.centre.kind != "correction"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("das hat mein Hau", "Haus"),
        ("ein Häusr", "Häuser"),
        ("the hou", "house"),
        ("in teh", "the"),
        ("we dont", "don't"),
    ],
)
def test_two_languages_share_one_strip(text: str, first: str) -> None:
    strip = keyboard(BOTH, "de", "en").suggest(text)

    assert strip.centre is not None
    assert strip.centre.text == first


@pytest.mark.parametrize(
    ("word", "begun", "begins", "language", "expected"),
    [
        ("iyi", "", True, "tr", "İyi"),
        ("iyi", "İY", False, "tr", "İYİ"),
        ("ılık", "I", False, "tr", "Ilık"),
        ("iyi", "", True, "en", "Iyi"),
        ("Haus", "ha", False, "de", "Haus"),
        ("Haus", "HA", False, "de", "HAUS"),
        ("👍", "", True, "en", "👍"),
        ("שלום", "", True, "he", "שלום"),
        ("Straße", "STR", False, "de", "STRASSE"),
    ],
)
def test_capitals_follow_the_language(
    word: str, begun: str, begins: bool, language: str, expected: str
) -> None:
    assert cased(word, begun, begins_sentence=begins, languages=[language]) == expected


@pytest.mark.parametrize("text", ["我们看", "see 明天", "สวัสดี", "ok日本", "好" * 100_000])
def test_writing_without_blanks_has_an_empty_strip_and_is_never_learnt(text: str) -> None:
    board = keyboard(GERMAN, "de")

    for _ in range(3):
        board.learn(text)

    assert shown(board.suggest(text)) == []
    assert "".join(shown(board.suggest(""))).isalpha()
    assert not {*"我明ส本好"} & set("".join(shown(board.suggest(""))))


def test_text_from_right_to_left_is_completed() -> None:
    hebrew = keyboard(("של", "שלום", "עולם"), "he")

    # With its vowels or without, and though another direction is forced around it.
    for typed in ("שלו", "שָׁלו", "\u202eשלו"):
        assert shown(hebrew.suggest(f"של {typed}"))[0] == "שלום"


def test_an_emoji_that_is_typed_twice_is_the_persons_own_word() -> None:
    board = keyboard(GERMAN, "de")
    for _ in range(800):
        board.learn("😀")

    assert "😀" in shown(board.suggest("das "))


def test_a_message_of_a_hundred_thousand_letters_has_a_strip() -> None:
    board = keyboard(GERMAN, "de")

    assert shown(board.suggest("das " * 25_000 + "Ha"))[0] == "Haus"
    assert shown(board.suggest("a" * 100_000)) == ["a" * 256]
