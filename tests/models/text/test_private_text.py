"""What no shared model may learn from a person's text, and what stays."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.private_text import KINDS, Kind, cut_private, training_sentences
from models.text.words import UNK_WORD, split_sentences


@pytest.mark.parametrize(
    ("kind", "private"),
    [
        ("names", "Mr Smith"),
        ("names", "mr smith"),
        ("names", "MR SMITH"),
        ("names", "Dr. Jones"),
        ("names", "Dr.Jones"),
        ("names", "Mrs. J. R. O’Brien-Jones"),
        ("names", "Prof. Dr. Müller"),
        ("names", "Frau von der Leyen"),
        ("names", "Sen\u0303or Garci\u0301a"),
        ("names", "Uncle Bob"),
        ("addresses", "12 Baker Street"),
        ("addresses", "221b baker st."),
        ("addresses", "3/14 Old Mill Road"),
        ("addresses", "20 Hill Drive"),
        ("addresses", "Hauptstraße 12"),
        ("addresses", "Berliner Straße 5"),
        ("addresses", "12 rue de la Paix"),
        ("addresses", "Calle de Alcalá 42"),
        ("addresses", "Via dell’Orso 7"),
        ("addresses", "10 St. John's Road"),
        ("cards", "4111 1111 1111 1111"),
        ("cards", "4111-1111-1111-1111"),
        ("cards", "4111.1111.1111.1111"),
        ("cards", "4111\u00a01111\u00a01111\u00a01111"),
        ("cards", "378282246310005"),
        ("cards", "3782 822463 10005"),
        ("emails", "jane.doe@example.org"),
        ("links", "https://example.org/jane"),
        ("links", "www.example.org"),
        ("links", "/home/jane/letter.txt"),
        ("numbers", "+65-9123-4567"),
        ("numbers", "10:30"),
        # The check digit of this one is wrong.
        ("numbers", "4111111111111112"),
    ],
)
def test_each_kind_is_cut_and_counted_as_itself(kind: Kind, private: str) -> None:
    left, counts = cut_private(f"so {private}, then", mask="#")

    assert counts == Counter({kind: 1})
    # Titles say nobody's name.
    titles = {"mr", "dr", "mrs", "prof", "frau", "señor", "uncle"} if kind == "names" else set()
    assert {word for found in split_sentences(left) for word in found} - titles == {"so", "then"}


@pytest.mark.parametrize(
    "said",
    [
        "i miss you",
        "Miss You a lot",
        "see the dr today",
        "Yes Sir I can",
        "it is down the road",
        "we met mr and mrs",
        "my lady friend",
        "TL;DR leave",
        "an mx record of a host",
        "the street is long",
        "a drive of miles",
    ],
)
def test_what_only_looks_private_stays(said: str) -> None:
    assert cut_private(said) == (said, Counter())


def test_numbers_that_end_as_a_card_s_does_are_none_unless_in_its_groups() -> None:
    # The check digit of 4096200602190004 is right.
    _, counts = cut_private("4096 2006-02-19 0004")

    assert counts["cards"] == 0


def test_minutes_down_the_road_are_no_address() -> None:
    assert training_sentences("5 minutes down the road") == [
        [UNK_WORD, "minutes", "down", "the", "road"]
    ]


def test_a_name_behind_a_title_is_one_unknown_word_and_ends_no_sentence() -> None:
    text = "I saw Dr. Anna Jones. Mr and Mrs Smith came!"

    assert split_sentences(text)[:2] == [["i", "saw", "dr"], ["anna", "jones"]]
    assert training_sentences(text) == [
        ["i", "saw", "dr", UNK_WORD],
        ["mr", "and", "mrs", UNK_WORD, "came"],
    ]


def test_a_kind_to_keep_is_left_in() -> None:
    text = "mr smith of 12 baker street"

    assert training_sentences(text, ["names"]) == [["mr", "smith", "of", UNK_WORD]]
    assert training_sentences(text, ["addresses"]) == [
        ["mr", UNK_WORD, "of", UNK_WORD, "baker", "street"]
    ]
    assert training_sentences(text, KINDS) == split_sentences(text)


def test_an_electronic_address_is_never_cut_in_two() -> None:
    said = "mail mr jones@host.org or mr www.jones.org"

    assert training_sentences(said) == [["mail", "mr", UNK_WORD, "or", "mr", UNK_WORD]]


@given(st.text(alphabet=st.sampled_from("aB é'’.!? \n-:/@<>_05pw#"), max_size=80))
def test_text_without_names_and_streets_is_split_as_ever(text: str) -> None:
    assert training_sentences(text) == split_sentences(text)


@given(st.text(max_size=200))
def test_any_text_can_be_cut(text: str) -> None:
    cut_private(text)


@pytest.mark.parametrize(
    "piece",
    [
        *("mr ", "Mr A", "a", "É", "e\u0301", "Mr. A. ", "mr van ", "Mr.", "Frau Dr. "),
        *("1 ", "1 a ", "12 ba", "1-", "1 rue de ", "calle a ", "a str. ", "ab-", "a'", "1 aa"),
        *("שלום ", "你好", "\u202ea"),
    ],
)
def test_a_long_message_is_cut_in_time(piece: str) -> None:
    long = piece * (100_000 // len(piece))

    # A pattern of quadratic time takes minutes for any of these: the suite's limit ends it.
    cut_private(long)
