"""What the doctor says of a person's text in whatever script and state it is."""

from pathlib import Path

import pytest

from edge_client.owner.own_data import examine_data
from edge_client.owner.typed_text import TextSettings
from models.text.vocabulary import Vocabulary

WORDS = Vocabulary(("<unk>", "<eos>", "the", "time", "of", "day"))


def told(folder: Path, text: str) -> dict[str, tuple[bool, str]]:
    path = folder / "text.txt"
    path.write_text(text)
    found = examine_data(path, TextSettings(), WORDS, list_name="short", now=0.0)
    return {one.subject: (one.good, one.text) for one in found}


def test_text_that_the_list_knows_half_of(tmp_path: Path) -> None:
    found = told(tmp_path, "The time is now. Call 555-1234 or a@example.org!\n")

    # Eight words in two sentences, two of which are hidden; of six the list has "the" and "time".
    assert found["text"][1].startswith("1 text, 2 sentences, 8 words: 1 text to train on, 0 of")
    assert found["known words"] == (True, "short has 2 of 6 words (33.3%)")
    assert found["private"] == (True, "cut from training: emails 1, numbers 1")
    good, enough = found["enough"]
    assert good
    assert "fewer than 10 texts" in enough


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("what are you doing and where is it", "English"),
        ("ich gehe mit der Frau in die Stadt und das ist gut", "German"),
        ("je ne sais pas ce que tu veux dans la vie", "French"),
        ("zzz qqq xyz", "unclear"),
    ],
)
def test_the_language_is_guessed_by_its_commonest_words(
    tmp_path: Path, text: str, language: str
) -> None:
    assert told(tmp_path, text)["language"][1].startswith(language)


def test_writing_without_blanks_is_named_as_what_cannot_be_learnt(tmp_path: Path) -> None:
    found = told(tmp_path, "我们明天去看海吧。你好吗？\n")

    assert not found["language"][0]
    assert "Chinese 100 %; this writing has no blanks between words" in found["language"][1]
    assert not found["known words"][0]
    # No federation's list would help.
    assert found["known words"][1] == "short has 0 of 2 words (0.0%)"


def test_other_letters_than_the_lists_lead_to_another_federation(tmp_path: Path) -> None:
    found = told(tmp_path, "добрый день\n")

    assert "the text's letters are Cyrillic 100 %: take part" in found["known words"][1]
    assert found["enough"] == (False, "no: no text to train on has a word of the word list")


def test_mixed_scripts_are_told_by_their_shares(tmp_path: Path) -> None:
    # Six Latin letters, three Hebrew, one Chinese.
    found = told(tmp_path, "theday שלו 好\n")

    assert found["language"] == (
        True,
        "unclear; letters: Latin 60 %, Hebrew 30 %, Chinese 10 %",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "5 6 7",
        "a" * 100_000,
        "the " * 25_000,
        "e\u0301" * 50_000,
        "\u0301" * 100_000,
        "\u202eשלום " * 20_000,
        "好" * 100_000,
        "Mr " * 30_000,
        "\U0001f600" * 50_000,
    ],
)
def test_no_text_is_an_exception_or_takes_long(tmp_path: Path, text: str) -> None:
    # What takes quadratic time ends by the suite's limit, after minutes.
    found = told(tmp_path, text)

    assert set(found) == {"text", "language", "known words", "private", "enough"}


def test_what_is_no_text_is_one_finding(tmp_path: Path) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(b"\0\1")
    missing = examine_data(tmp_path / "none", TextSettings(), WORDS, list_name="short", now=0.0)
    binary = examine_data(path, TextSettings(), WORDS, list_name="short", now=0.0)

    assert [(one.subject, one.good) for one in (*missing, *binary)] == [("text", False)] * 2
    assert "is a binary file" in binary[0].text
