"""Public text as a model reads it: rows of a word list, in pieces that an epoch shuffles."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from edge_client.datasets.registry import DATASETS, SPEECH_SETS, load_dataset
from edge_client.datasets.text_set import FederatedText, Sentence, UserText
from models.compression.packed_model import PublicText
from models.text.languages import letters_told
from models.text.vocabulary import EOS, UNK, Vocabulary
from models.text.words import split_sentences

_FOLDER = "folder"
_WIKITEXT = "wikitext2"
# Neighbouring sentences stay together, so that a model learns what carries over from one to the
# next; pieces this short still mix the texts within every window.
_PIECE_SENTENCES = 20
# WikiText parts what typists write as one word: it 's, didn 't, well @-@ known, 1 @,@ 000.
_PARTED_MARK = re.compile(r" @([-,.])@ ")
_PARTED_END = re.compile(r" '(s|t|re|ve|ll|d|m)\b")


class NamedText(NamedTuple):
    """A data set, where it lies, and how often an epoch reads it; early ones only at first."""

    name: str
    path: Path
    times: int = 1
    is_early: bool = False


class Corpus(NamedTuple):
    """All text to learn from.

    Attributes:
        pieces: Rows of neighbouring sentences, int64, once for each time that an epoch reads them.
        facts: What each text came to.
        sha256: Hex digest of all rows in their order.
        early: As ``pieces``, of texts that the first half of the epochs reads alone.
    """

    pieces: tuple[Tensor, ...]
    facts: tuple[PublicText, ...]
    sha256: str
    early: tuple[Tensor, ...] = ()

    def token_count(self, epoch: int, epochs: int) -> int:
        """Return the tokens of one of some epochs, from 0."""
        return sum(map(len, self._read_in(epoch, epochs)))

    def shuffled(self, epoch: int, epochs: int, generator: torch.Generator) -> Tensor:
        """Return the text of one of some epochs as one stream, int64, shape ``(tokens,)``."""
        pieces = self._read_in(epoch, epochs)
        order = torch.randperm(len(pieces), generator=generator).tolist()
        return torch.cat([pieces[place] for place in order])

    def _read_in(self, epoch: int, epochs: int) -> tuple[Tensor, ...]:
        return self.pieces + self.early if 2 * epoch < epochs else self.pieces


class NamedRecordings(NamedTuple):
    """A set of recordings, and where it lies."""

    name: str
    path: Path


def parse_recordings(text: str) -> NamedRecordings:
    """Read ``NAME=PATH``.

    Raises:
        ValueError: If there is no such set of recordings.
    """
    name, equals, path = text.partition("=")
    if name not in SPEECH_SETS or not equals:
        raise ValueError(f"recordings must be NAME=PATH of {', '.join(SPEECH_SETS)}, got {text!r}")
    return NamedRecordings(name, Path(path))


def parse_text(text: str) -> NamedText:
    """Read ``FOLDER`` or ``NAME=PATH``, with ``:TIMES`` behind it or not.

    Raises:
        ValueError: If there is no such data set, or TIMES is 0.
    """
    head, colon, times = text.rpartition(":")
    is_counted = bool(colon) and times.isdecimal()
    place = head if is_counted else text
    name, equals, path = place.partition("=")
    if not equals:
        name, path = _FOLDER, place
    if name not in DATASETS:
        raise ValueError(f"a text must be of {', '.join(DATASETS)}, got {name!r} in {text!r}")
    if is_counted and int(times) < 1:
        raise ValueError(f"an epoch must read a text at least once, got {times} in {text!r}")
    return NamedText(name, Path(path), int(times) if is_counted else 1)


def read_corpus(texts: Sequence[NamedText], vocabulary: Vocabulary) -> Corpus:
    """Read the training part of every text.

    Raises:
        DatasetError: If a text cannot be loaded.
        ValueError: If a text has no word of the list.
    """
    late: list[Tensor] = []
    early: list[Tensor] = []
    facts: list[PublicText] = []
    digest = hashlib.sha256()
    for text in texts:
        typed = _sentences(text.name, load_dataset(text.name, text.path).train)
        sentences = list(vocabulary.read(typed))
        own = list(_pieces(sentences, vocabulary))
        rows = torch.cat(own)
        word_count = int((rows != EOS).sum())
        unknown_count = int((rows == UNK).sum())
        if unknown_count == word_count:
            raise ValueError(
                f"{text.path} must have a word of the word list, all of its {word_count} are "
                f"unknown; its letters are {letters_told(typed)}; is it of this language?"
            )
        digest.update(rows.numpy().astype("<i8").tobytes())
        (early if text.is_early else late).extend(own * text.times)
        facts.append(
            PublicText(
                name=text.name,
                times=text.times,
                early=text.is_early,
                token_count=len(rows),
                unknown_words=unknown_count / word_count,
            )
        )
    return Corpus(tuple(late), tuple(facts), digest.hexdigest(), tuple(early))


def held_out(text: NamedText, vocabulary: Vocabulary) -> list[Tensor]:
    """Return what a data set holds out, a stream for each user.

    Raises:
        DatasetError: If it cannot be loaded.
        ValueError: If it holds nothing out.
    """
    whole = load_dataset(text.name, text.path)
    streams = [
        torch.tensor(vocabulary.token_stream(sentences), dtype=torch.int64)
        for sentences in _held_out_by_user(text.name, whole)
    ]
    if not streams:
        raise ValueError(f"{text.path} must hold text out to measure on; it is too short for that")
    return streams


def _held_out_by_user(name: str, text: FederatedText) -> Iterator[list[Sentence]]:
    for user in sorted({*text.valid, *text.test}):
        own = {user: [*text.valid.get(user, ()), *text.test.get(user, ())]}
        if sentences := _sentences(name, own):
            yield sentences


def _sentences(name: str, users: UserText) -> list[Sentence]:
    """Return the sentences of all users, as people type them, in the order of names."""
    sentences = [sentence for user in sorted(users) for sentence in users[user]]
    if name != _WIKITEXT:
        return sentences
    return [typed for sentence in sentences for typed in split_sentences(_joined(sentence))]


def _joined(tokens: Sentence) -> str:
    return _PARTED_END.sub(r"'\1", _PARTED_MARK.sub(r"\1", " ".join(tokens)))


def _pieces(sentences: Sequence[Sentence], vocabulary: Vocabulary) -> Iterator[Tensor]:
    rest = iter(sentences)
    while piece := list(islice(rest, _PIECE_SENTENCES)):
        yield torch.tensor(vocabulary.token_stream(piece), dtype=torch.int64)
