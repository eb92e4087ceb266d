"""What a device trains on: its own text, within its owner's limits, never what is held out."""

from collections import Counter
from pathlib import Path

import pytest

from edge_client.child.own_text import OwnText, training_examples
from edge_client.datasets.text_set import DatasetError
from edge_client.owner.settings import (
    ClientSettings,
    read_client_settings,
    write_starting_settings,
)
from edge_client.owner.typed_text import LocalText, TextSettings
from models.text.vocabulary import EOS, Vocabulary

NOW = 1_800_000_000.0
LETTERS = "abcdefghij"
WORDS = Vocabulary(("<unk>", "<eos>", *LETTERS, "k"))


def expected(letters: str) -> list[int]:
    """Return each letter as a sentence."""
    return [token for letter in letters for token in (WORDS.words.index(letter), EOS)]


def type_letters(path: Path, letters: str = LETTERS) -> LocalText:
    text = LocalText(path, TextSettings())
    for letter in letters:
        text.add(letter, now=NOW, incognito=False)
    return text


def test_a_device_trains_on_the_oldest_and_is_scored_on_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    type_letters(path)

    own = OwnText.read(path, TextSettings(), now=NOW)

    # 10 texts: 8 to train on, 2 held out.
    assert own.training_examples(WORDS).tolist() == expected("abcdefgh")
    assert own.held_out_examples(WORDS).tolist() == expected("ij")


def test_a_folder_and_a_file_give_the_same_stream(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("\n".join(LETTERS))

    from_folder = training_examples(tmp_path, WORDS)
    from_file = training_examples(tmp_path / "1.txt", WORDS)

    assert from_folder.tolist() == from_file.tolist() == expected("abcdefgh")


def test_only_what_was_trained_on_is_deleted_and_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    typed = type_letters(path)
    told = OwnText.read(path, TextSettings(delete_after_use=True), now=NOW)
    typed.add("k", now=NOW + 1, incognito=False)

    OwnText.read(path, TextSettings(), now=NOW).delete_trained()
    assert len(typed.read(now=NOW)) == 11
    told.delete_trained()

    assert [stored.text for stored in typed.read(now=NOW)] == ["i", "j", "k"]


@pytest.mark.parametrize("before", [9, 19, 60])
def test_hidden_sentences_are_held_out_each_for_what_it_says(tmp_path: Path, before: int) -> None:
    # One sentence more than the neighbour: exactly one example more, in one of the two parts.
    notes = [f"{LETTERS[place % 10]} {LETTERS[place // 10]}" for place in range(before)]
    notes[-1] = ". ".join(f"k {letter}" for letter in LETTERS)
    (tmp_path / "without.txt").write_text("\n".join(notes))
    (tmp_path / "with.txt").write_text("\n".join(["b b b", *notes]))

    without, more = (sentences_of(tmp_path / f"{name}.txt") for name in ("without", "with"))

    changed = [(more[part] - without[part]).total() for part in ("train", "held out")]
    assert sorted(changed) == [0, 1]
    assert not any((without[part] - more[part]) for part in ("train", "held out"))
    assert not without["train"].keys() & without["held out"].keys()


def test_only_texts_with_a_sentence_that_was_trained_on_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    typed = type_letters(path)
    limits = TextSettings(delete_after_use=True)
    own = OwnText.read(path, limits, now=NOW, each_alone=True)
    held_out = own.held_out_examples(WORDS).tolist()

    own.delete_trained()

    left = "".join(stored.text for stored in typed.read(now=NOW))
    assert held_out == expected(left)
    assert 0 < len(left) < len(LETTERS)


def sentences_of(path: Path) -> dict[str, Counter[str]]:
    """Return how often each sentence stands in the two parts of a text."""
    own = OwnText.read(path, TextSettings(), now=NOW, each_alone=True)
    streams = {"train": own.training_examples(WORDS), "held out": own.held_out_examples(WORDS)}
    return {
        part: Counter("".join(WORDS.words[token] for token in stream).split("<eos>")[:-1])
        for part, stream in streams.items()
    }


def test_text_outside_the_limits_is_removed_before_training(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    typed = type_letters(path, "ab")
    typed.add("c", now=NOW + 86_400, incognito=False)

    own = OwnText.read(path, TextSettings(retention_days=1), now=NOW + 86_400)

    assert own.training_examples(WORDS).tolist() == expected("c")
    assert len(path.read_bytes().splitlines()) == 1


def test_without_limits_the_owners_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    content = '{"text": "a", "time": 0, "incognito": true}\n\n{"text": "b"}'
    path.write_text(content)

    own = OwnText.read(path, TextSettings(), now=NOW)

    assert own.training_examples(WORDS).tolist() == expected("b")
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "zzz yyy", "123", "..."])
def test_text_without_a_known_word_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.txt").write_text(content)

    with pytest.raises(DatasetError, match="must have a word of the vocabulary to train on"):
        training_examples(tmp_path, WORDS)


@pytest.mark.parametrize(
    ("content", "letters"),
    [
        ("до скорого", "its letters are Cyrillic 100 %; `sotto-client"),
        ("我们去看海\n" * 20, "Chinese 100 %, writing without blanks between words; `sotto-client"),
    ],
)
def test_text_in_letters_that_the_list_does_not_know_is_named(
    tmp_path: Path, content: str, letters: str
) -> None:
    (tmp_path / "1.txt").write_text(content)

    with pytest.raises(DatasetError, match=letters):
        training_examples(tmp_path, WORDS)


def test_writing_without_blanks_is_not_learnt_beside_other_text(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a 看海\n我们\nb zzz\n")

    assert training_examples(tmp_path, WORDS).tolist() == [2, EOS, 3, 0, EOS]


def test_missing_data_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is missing"):
        training_examples(tmp_path / "typed.jsonl", WORDS)
    with pytest.raises(DatasetError, match="is empty"):
        training_examples(tmp_path, WORDS)


def test_the_settings_to_start_from_are_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    write_starting_settings(path)

    assert read_client_settings(path) == ClientSettings()


def test_names_are_not_trained_on_unless_the_owner_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    LocalText(path, TextSettings()).add("a Mr. B c", now=NOW, incognito=False)
    words = Vocabulary(("<unk>", "<eos>", "a", "mr", "b", "c"))

    def stream(settings: TextSettings) -> list[int]:
        return OwnText.read(path, settings, now=NOW).training_examples(words).tolist()

    # "mr" begins no sentence of its own where its full stop belongs to the title.
    assert stream(TextSettings()) == [2, 3, 0, 5, EOS]
    assert stream(TextSettings(keep=("names",))) == [2, 3, EOS, 4, 5, EOS]
