"""Public text on its way to rows: as people type it, without what is held out."""

from pathlib import Path

import pytest
import torch

from models.text.vocabulary import EOS, UNK, Vocabulary
from simulation.starting.texts import Corpus, NamedText, held_out, parse_text, read_corpus

WORDS = Vocabulary(("<unk>", "<eos>", "a", "self-made", "it's", "don't", "self", "made", "thing"))


def folder_of(path: Path, lines: list[str]) -> Path:
    path.mkdir()
    (path / "someone.txt").write_text("\n".join(lines))
    return path


def rows(corpus: Corpus) -> list[int]:
    return [row for piece in corpus.pieces for row in piece.tolist()]


@pytest.mark.parametrize(
    ("text", "name", "path", "times"),
    [
        ("texts", "folder", "texts", 1),
        ("texts:2", "folder", "texts", 2),
        ("reddit=a/b:3", "reddit", "a/b", 3),
        ("irc=C:/logs", "irc", "C:/logs", 1),
        ("folder=with:colon", "folder", "with:colon", 1),
    ],
)
def test_a_text_is_named_with_where_it_lies_and_how_often_it_is_read(
    text: str, name: str, path: str, times: int
) -> None:
    assert parse_text(text) == NamedText(name, Path(path), times)


def test_what_a_set_holds_out_is_measured_on_and_never_learnt_from(tmp_path: Path) -> None:
    # Of ten lines of one user, the last two are held out.
    folder = folder_of(tmp_path / "t", ["a thing"] * 8 + ["made"] * 2)

    corpus = read_corpus([NamedText("folder", folder, times=2)], WORDS)

    a, thing, made = WORDS.encode(("a", "thing", "made"))
    assert rows(corpus) == [a, thing, EOS] * 16
    assert (corpus.token_count(0, 1), corpus.facts[0].token_count) == (48, 24)
    (stream,) = held_out(NamedText("folder", folder), WORDS)
    assert stream.tolist() == [made, EOS] * 2


def test_unknown_words_are_a_share_of_words_and_not_of_ends(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t", ["a strange thing thing"] * 5)

    (fact,) = read_corpus([NamedText("folder", folder)], WORDS).facts

    assert (fact.token_count, fact.unknown_words) == (25, 1 / 4)


def test_a_start_learns_no_name_behind_a_title(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t", ["a thing dr made"] * 5)

    corpus = read_corpus([NamedText("folder", folder)], WORDS)

    a, thing = WORDS.encode(("a", "thing"))
    assert rows(corpus) == [a, thing, UNK, UNK, EOS] * 5


def test_wikitext_reads_as_people_type_it(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        lines = " = Heading = \n\n It 's a self @-@ made thing , don 't you . A thing ! \n"
        (tmp_path / f"wiki.{part}.tokens").write_text(lines)

    corpus = read_corpus([NamedText("wikitext2", tmp_path)], WORDS)

    its, a, self_, made, thing = WORDS.encode(("it's", "a", "self", "made", "thing"))
    dont = WORDS.encode(("don't",))[0]
    assert rows(corpus) == [
        *(UNK, EOS),
        # A hyphen parts words and an apostrophe does not, as in any typed text.
        *(its, a, self_, made, thing, dont, UNK, EOS),
        *(a, thing, EOS),
    ]


def test_an_epoch_shuffles_pieces_and_keeps_sentences_together(tmp_path: Path) -> None:
    lines = [f"{'a ' * (number % 37 + 1)}thing" for number in range(400)]
    corpus = read_corpus([NamedText("folder", folder_of(tmp_path / "t", lines))], WORDS)

    first, second = (corpus.shuffled(0, 1, torch.Generator().manual_seed(seed)) for seed in (1, 2))

    assert not torch.equal(first, second)
    assert sorted(_sentences(first)) == sorted(_sentences(second))
    assert torch.equal(first, corpus.shuffled(0, 1, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(("epochs", "early"), [(1, 1), (2, 1), (3, 2), (6, 3)])
def test_an_early_text_is_read_in_the_first_half_of_the_epochs_alone(
    tmp_path: Path, epochs: int, early: int
) -> None:
    late = NamedText("folder", folder_of(tmp_path / "late", ["a thing"] * 10))
    first = NamedText("folder", folder_of(tmp_path / "early", ["made"] * 10), is_early=True)

    corpus = read_corpus([late, first], WORDS)

    made = WORDS.encode(("made",))[0]
    texts = [corpus.shuffled(epoch, epochs, torch.Generator()) for epoch in range(epochs)]
    # Eight of ten lines are learnt from, of three tokens and of two.
    assert [len(text) for text in texts] == [24 + 16] * early + [24] * (epochs - early)
    assert [int((text == made).sum()) for text in texts] == [8] * early + [0] * (epochs - early)
    assert [corpus.token_count(epoch, epochs) for epoch in range(epochs)] == list(map(len, texts))
    assert [text.early for text in corpus.facts] == [False, True]


def test_a_set_too_short_to_hold_anything_out_cannot_be_measured_on(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t", ["a thing"] * 3)

    with pytest.raises(ValueError, match="must hold text out to measure on"):
        held_out(NamedText("folder", folder), WORDS)


def _sentences(stream: torch.Tensor) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    words: list[int] = []
    for row in stream.tolist():
        words.append(row)
        if row == EOS:
            found.append(tuple(words))
            words = []
    return found
