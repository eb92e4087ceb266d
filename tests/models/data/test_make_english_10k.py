"""How the shipped word list is made: many people's words, nobody's name, no other split's text."""

from collections import Counter
from pathlib import Path

from models.data.make_english_10k import (
    allowed_chat,
    allowed_comments,
    count_chat,
    rare_words,
    read_scowl,
    score,
)

LISTED = {"hello": 10, "rare": 20, "spam": 20, "king": 35, "king's": 35}


def messages(
    word: str, nicknames: int, repeats: int = 1, split: str = "train"
) -> list[dict[str, str]]:
    return [
        {"split": split, "user": f"nick{number}", "text": f"{word} " * repeats}
        for number in range(nicknames)
    ]


def test_a_word_needs_enough_people_and_more_where_no_list_has_it() -> None:
    chat = [
        *messages("hello", 5),
        *messages("rare", 4, repeats=9),
        *messages("lol", 10),
        *messages("pwd", 9),
    ]

    counts = allowed_chat(count_chat(chat), LISTED, set())

    assert counts == {"hello": 5, "lol": 10}


def test_a_word_needs_enough_comments_and_more_where_no_list_has_it_or_it_is_a_name() -> None:
    comments = [
        *["hello hello"] * 3,
        *["rare"] * 2,
        *["lol"] * 8,
        *["pwd"] * 7,
        *["reddit's"] * 60,
        *["eric"] * 59,
    ]

    counts = allowed_comments(comments, LISTED, {"eric", "reddit"})

    assert counts == {"hello": 3, "lol": 8, "reddit's": 60}


def test_what_people_type_weighs_alike_however_long_the_texts_are() -> None:
    scores = score({"chat": Counter({"x": 1}), "comments": Counter({"y": 900, "x": 100})}, {}, {})

    assert scores == {"x": (1 + 1 / 10) / 2, "y": 9 / 10 / 2}


def test_names_need_so_many_people_that_they_cannot_mean_one_person() -> None:
    chat = [
        *messages("nick", 119),
        *messages("eric", 119),
        *messages("google", 120),
        {"split": "train", "user": "nick", "text": "..."},
    ]

    counts = allowed_chat(count_chat(chat), LISTED, {"eric", "google"})

    assert counts == {"google": 120}


def test_one_spammer_does_not_make_a_word_frequent() -> None:
    chat = [*messages("spam", 5), *messages("spam", 1, repeats=1000)]

    counts = allowed_chat(count_chat(chat), LISTED, set())

    # nick0 counts 20 times at most, the other four once each.
    assert counts == {"spam": 24}


def test_other_splits_bots_and_addressees_are_not_counted() -> None:
    chat = [
        *messages("hello", 5),
        *messages("hello", 9, split="test"),
        {"split": "train", "user": "ubottu", "text": "hello"},
        {"split": "train", "user": "nick0", "text": "nick1: hello"},
    ]

    counts = allowed_chat(count_chat(chat), LISTED, set())

    assert counts == {"hello": 6}
    assert "ubottu" not in count_chat(chat)


def test_texts_far_from_a_keyboard_add_little_and_nothing_for_single_words() -> None:
    afar = {"plays": Counter({"king": 900, "rare": 1, "king's": 99})}

    scores = score({"chat": Counter({"hello": 1})}, afar, LISTED)

    # A cap of 5e-6 on top of SCOWL's class 35; once is no evidence; possessives only from chat.
    assert scores["king"] == 5e-6 + 1e-7
    assert scores["rare"] == 2e-6
    assert "king's" not in scores


def test_what_a_keyboard_must_not_suggest_is_left_out_however_frequent() -> None:
    scores = score(
        {"chat": Counter({"hello": 1})},
        {"plays": Counter("x")},
        {"hello": 10, "whore": 10, "ass": 10},
    )

    assert scores.keys() == {"hello"}


def test_a_rare_word_that_is_also_a_name_counts_as_the_name(tmp_path: Path) -> None:
    for name, words in (
        ("english-words.10", "will"),
        ("english-words.40", "john\nquoin"),
        ("english-contractions.35", "I'm"),
        ("english-upper.10", "John"),
        ("english-proper-names.50", "Will"),
    ):
        (tmp_path / name).write_text(words)

    listed, names = read_scowl(tmp_path)

    assert {"will", "quoin", "i'm", "i", "monday", "march"} <= listed.keys()
    assert "john" not in listed
    assert names == {"will"}


def test_rare_words_go_on_in_their_order_without_listed_unknown_and_offensive_ones() -> None:
    ranked = [
        "the",
        "teh",
        "Oxford",
        "oxford",
        "zut",
        "zuts",
        "zuted",
        "slags",
        "b",
        "king's",
        "café",
    ]
    ranked += ["o'clock", "oxford", "42", "👍", "shitty"]
    known = {*ranked} - {"teh"}

    assert rare_words(ranked, ["the"], known, ["zut"]) == ["oxford", "café", "o'clock"]
