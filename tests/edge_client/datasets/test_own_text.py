"""The reader's own text: folders and JSONL files, and the manual that needs neither."""

import json
from pathlib import Path

import pytest

from edge_client.datasets.registry import load_dataset
from edge_client.datasets.text.manual import prose_by_topic
from edge_client.datasets.text_set import DatasetError
from models.text.words import split_sentences


def test_each_file_and_each_subfolder_is_a_user(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("we sing\n\nwe hum\n")
    (tmp_path / "bob" / "deep").mkdir(parents=True)
    (tmp_path / "bob" / "2.txt").write_text("two")
    (tmp_path / "bob" / "deep" / "1.txt").write_text("three")
    (tmp_path / "bob" / "1.txt").write_text("one")
    (tmp_path / ".hidden").write_bytes(b"\0")
    (tmp_path / "nobody").mkdir()

    text = load_dataset("folder", tmp_path)

    assert text.train == {
        "ann": [["we", "sing"], ["we", "hum"]],
        "bob": [["one"], ["two"], ["three"]],
    }


def test_the_end_of_each_file_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("\n".join("abcdefghij"))

    text = load_dataset("folder", tmp_path)

    assert (text.valid, text.test) == ({"ann": [["i"]]}, {"ann": [["j"]]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\0\1", "byte 4 is zero: it is a binary file"),
        (b"caf\xe9", "must be UTF-8 text, but byte 3 is not"),
        (b"", "at least one word"),
        (b"12 34\n<#>\n...", None),
    ],
)
def test_a_file_that_is_no_text_is_refused(
    tmp_path: Path, content: bytes, said: str | None
) -> None:
    (tmp_path / "ann.txt").write_bytes(content)

    if said is None:  # hidden words are still text; encoding decides whether one is known
        assert load_dataset("folder", tmp_path).train["ann"][0] == ["<unk>", "<unk>"]
    else:
        with pytest.raises(DatasetError, match=said):
            load_dataset("folder", tmp_path)


def test_an_empty_folder_a_file_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is empty; put one text file a user in it"):
        load_dataset("folder", tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(DatasetError, match="must be a folder of text files"):
            load_dataset("folder", path)


def test_two_users_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_text("a")
    (tmp_path / "ann.md").write_text("b")

    with pytest.raises(DatasetError, match="two users named ann"):
        load_dataset("folder", tmp_path)


def test_a_byte_order_mark_is_not_part_of_the_first_word(tmp_path: Path) -> None:
    (tmp_path / "ann.txt").write_bytes(b"\xef\xbb\xbfhello\r\nyou\r\n")

    assert load_dataset("folder", tmp_path).train == {"ann": [["hello"], ["you"]]}


def test_messages_are_grouped_by_user_and_other_fields_passed_over(tmp_path: Path) -> None:
    rows = [
        {"user": "ann", "text": "Hi. You?", "extra": 1},
        {"user": 7, "text": "fine"},
        {"user": "ann", "text": "bye"},
        {"user": "mute", "text": "..."},
    ]
    path = tmp_path / "messages.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))

    text = load_dataset("jsonl", tmp_path)

    assert text.train == {"ann": [["hi"], ["you"], ["bye"]], "7": [["fine"]]}
    assert text == load_dataset("jsonl", path)


def test_a_user_without_a_word_to_train_on_is_not_scored_either(tmp_path: Path) -> None:
    texts = ["..."] * 9 + ["late word"]
    path = tmp_path / "own.jsonl"
    lines = [{"user": "ann", "text": text} for text in texts] + [{"user": "bob", "text": "hi"}]
    path.write_text("\n".join(json.dumps(line) for line in lines))

    text = load_dataset("jsonl", path)

    assert text.train == {"bob": [["hi"]]}
    assert text.valid == text.test == {}


def test_the_manual_needs_no_path_and_gives_each_topic_to_one_user() -> None:
    text = load_dataset("manual")

    assert len(text.train) > 50
    words = sum(
        len(s) for part in (text.train, text.valid, text.test) for u in part.values() for s in u
    )
    assert 40_000 < words < 80_000
    assert text.valid.keys() <= text.train.keys()
    assert text.test.keys() == text.valid.keys()
    # Grammar such as ``decinteger ::= nonzerodigit`` is left out.
    assert not any("decinteger" in sentence for sentence in text.train["integers"])


@pytest.mark.slow
def test_the_manual_is_prose_that_can_be_written_to_files_and_read_again(tmp_path: Path) -> None:
    prose = prose_by_topic()
    for topic, sentences in prose.items():
        (tmp_path / f"{topic}.txt").write_text("\n".join(sentences), "utf-8")

    text = load_dataset("folder", tmp_path)

    assert text.train == load_dataset("manual").train
    for sentences in prose.values():
        assert all(len(split_sentences(sentence)) == 1 for sentence in sentences)
