"""Each set loads from tiny files in its official layout, in its own folder or one above."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_client.datasets.federated_text import DatasetError
from edge_client.datasets.irc import is_bot
from edge_client.datasets.registry import DATASETS, load_dataset


def write_ptb(folder: Path) -> None:
    for part, line in (
        ("train", " we sing <unk> N songs "),
        ("valid", " we hum "),
        ("test", " x "),
    ):
        (folder / f"ptb.{part}.txt").write_text(f"{line}\n{line}\n")


def write_wikitext(folder: Path) -> None:
    for part in ("train", "valid", "test"):
        (folder / f"wiki.{part}.tokens").write_text(
            " \n = Lobster = \n \n The lobster @-@ red . \n"
        )


def write_reddit(folder: Path) -> None:
    for part in ("train", "dev", "test"):
        (folder / f"{part}.tsv").write_text(f"I like {part}, [NAME]! So do I\t27\teebbqej\n")


def write_sms(folder: Path) -> None:
    with gzip.open(folder / "messages_en.jsonl.gz", "wt") as lines:
        for row in _messages():
            lines.write(json.dumps(row) + "\n")


def write_irc(folder: Path) -> None:
    with gzip.open(folder / "messages.jsonl.gz", "wt") as lines:
        for split, user, text in (
            ("train", "ann", "bob: how are you?"),
            ("train", "bob", "ann, fine"),
            ("train", "ubottu", "ann: please read the guide"),
            ("dev", "ann", "note: this stays"),
            ("test", "eve", "hello ann"),
        ):
            lines.write(json.dumps({"split": split, "line": 1, "user": user, "text": text}) + "\n")


def _messages() -> list[dict[str, object]]:
    # Stored newest first: the time sent decides, so text 0 is the oldest.
    own = [
        {
            "id": 1,
            "user": "ann",
            "text": f"{'w' * (number + 1)}",
            "sent": f"2011.01.{number:02} 10:00",
        }
        for number in reversed(range(1, 21))
    ]
    undated = [
        {"id": 2, "user": "bob", "text": "first"},
        {"id": 3, "user": "bob", "text": "second"},
    ]
    return [*own, *undated, {"id": 4, "user": "0", "text": "nobody"}]


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "ptb": ("ptb", write_ptb),
    "wikitext2": ("wikitext-2", write_wikitext),
    "reddit": ("reddit_goemotions", write_reddit),
    "sms": ("nus_sms", write_sms),
    "irc": ("ubuntu_irc", write_irc),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_set_loads_from_its_folder_and_from_the_folder_of_all_sets(
    tmp_path: Path, name: str
) -> None:
    folder_name, write = WRITERS[name]
    folder = tmp_path / folder_name
    folder.mkdir()
    write(folder)

    assert load_dataset(name, folder) == load_dataset(name, tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder_name, write = WRITERS[name]
    write(tmp_path)
    last = max(tmp_path.iterdir())
    last.unlink()

    with pytest.raises(DatasetError) as refused:
        load_dataset(name, tmp_path)

    assert last.name in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert folder_name in str(refused.value)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "manual"])
def test_without_a_path_the_reader_learns_how_to_give_one(name: str) -> None:
    with pytest.raises(DatasetError, match=r"--data.*SOTTO_DATA"):
        load_dataset(name)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(DatasetError, match=r"one of manual, ptb, .* got 'ptp'"):
        load_dataset("ptp")


def test_penn_treebank_words_are_taken_as_they_are(tmp_path: Path) -> None:
    write_ptb(tmp_path)

    text = load_dataset("ptb", tmp_path)

    assert text.train == {"ptb": [["we", "sing", "<unk>", "N", "songs"]] * 2}
    assert text.valid == {"ptb": [["we", "hum"]] * 2}
    assert not text.has_users


def test_blank_lines_of_wikitext_are_sentences_without_words(tmp_path: Path) -> None:
    write_wikitext(tmp_path)

    text = load_dataset("wikitext2", tmp_path)

    expected = [[], ["=", "Lobster", "="], [], ["The", "lobster", "@-@", "red", "."]]
    assert text.test == {"wikitext2": expected}


def test_masked_names_of_reddit_are_unknown_words(tmp_path: Path) -> None:
    write_reddit(tmp_path)

    text = load_dataset("reddit", tmp_path)

    assert text.valid == {"reddit": [["i", "like", "dev", "<unk>"], ["so", "do", "i"]]}


def test_a_reddit_line_without_a_tab_is_refused_by_number(tmp_path: Path) -> None:
    write_reddit(tmp_path)
    (tmp_path / "dev.tsv").write_text("fine\t1\tx\nno tab here\n")

    with pytest.raises(DatasetError, match=r"dev\.tsv, line 2"):
        load_dataset("reddit", tmp_path)


def test_each_phone_user_trains_on_the_oldest_messages_and_is_tested_on_the_newest(
    tmp_path: Path,
) -> None:
    write_sms(tmp_path)

    text = load_dataset("sms", tmp_path)

    # 20 messages: 16 to train, 2 and 2 held out; bob has too few to hold any out.
    assert [len(sentence[0]) for sentence in text.train["ann"]] == list(range(2, 18))
    assert [len(sentence[0]) for sentence in text.valid["ann"]] == [18, 19]
    assert [len(sentence[0]) for sentence in text.test["ann"]] == [20, 21]
    assert text.train["bob"] == [["first"], ["second"]]
    assert text.has_users
    assert text.train.keys() == {"ann", "bob"}
    assert text.notes == ("1 messages of unknown senders were left out",)


def test_chat_keeps_its_split_and_loses_its_bots_and_addressees(tmp_path: Path) -> None:
    write_irc(tmp_path)

    text = load_dataset("irc", tmp_path)

    assert text.train == {"ann": [["how", "are", "you"]], "bob": [["fine"]]}
    assert text.valid == {"ann": [["note", "this", "stays"]]}
    assert text.test == {"eve": [["hello", "ann"]]}
    assert text.notes == ("1 bots with 1 messages were left out",)


def test_a_nickname_that_mostly_repeats_long_messages_is_a_bot() -> None:
    rule = "please read the rules of this channel before you ask"
    chatter = [f"what is number {number} for" for number in range(7)]

    assert is_bot("helper", [rule] * 8 + chatter)
    assert not is_bot("helper", [rule] * 7 + chatter + ["yes"])  # 7 of 15 is not most
    assert not is_bot("helper", ["yes"] * 15)
    assert is_bot("FloodBot3", [])
    assert not is_bot("abbot", ["hello"])


def test_a_line_that_is_no_message_is_refused_by_number_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text('{"user": "ann", "text": "private"}\n\n{"user": "ann", "txt": "private"}\n')

    with pytest.raises(DatasetError, match=r"messages\.jsonl, line 3: .*`text`") as refused:
        load_dataset("jsonl", path)

    assert "private" not in str(refused.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    write_sms(tmp_path)
    path = tmp_path / "messages_en.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(DatasetError, match="is damaged"):
        load_dataset("sms", path)
    path.write_bytes(b"not gzip at all")
    with pytest.raises(DatasetError, match=r"messages_en\.jsonl\.gz"):
        load_dataset("sms", path)
