"""Turn a device's own text into the word streams that a plan trains and scores on.

The text is split as every data set is (`edge_client.datasets.federated_text.split_in_order`): a
device trains on exactly what a simulation of it would train on. The newest fifth is held out and
is read by plans of kind ``evaluate`` only.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from edge_client.datasets.federated_text import DatasetError, split_in_order
from edge_client.datasets.folder import text_files
from edge_client.datasets.reading import read_rows, read_text
from models.text import split_sentences
from models.vocabulary import Vocabulary


class _Message(msgspec.Struct, frozen=True):
    text: str


def training_examples(data: Path, words: Vocabulary) -> Tensor:
    """Return the stream to train on: int64, shape ``(tokens,)``.

    Args:
        data: The person's own: a folder of text files, a text file, or a JSONL file with ``text``
            in each line, oldest first.
        words: The plan's word list.

    Raises:
        DatasetError: If the text cannot be read, or no word is left to train on.
    """
    train, _, _ = split_in_order(_typed(data))
    return _stream(train, words, "train on")


def held_out_examples(data: Path, words: Vocabulary) -> Tensor:
    """Return the stream to score on: int64, shape ``(tokens,)``; never trained on.

    Raises:
        DatasetError: As `training_examples`; a device with little text holds none out.
    """
    _, valid, test = split_in_order(_typed(data))
    return _stream([*valid, *test], words, "score on")


def _typed(data: Path) -> list[str]:
    """Return what the person typed, oldest first, one entry a line or message."""
    if data.name.endswith((".jsonl", ".jsonl.gz")):
        return [row.text for row in read_rows(data, _Message)]
    files = list(text_files(data)) if data.is_dir() else [data]
    if not files:
        raise DatasetError(f"{data} is empty; put text files in it")
    return [line for file in files for line in read_text(file).splitlines() if line.strip()]


def _stream(typed: Iterable[str], words: Vocabulary, purpose: str) -> Tensor:
    sentences = [sentence for text in typed for sentence in split_sentences(text)]
    if not any(word in words for sentence in sentences for word in sentence):
        raise DatasetError(f"the device's text must have a word of the vocabulary to {purpose}")
    return torch.tensor(words.token_stream(sentences), dtype=torch.int64)
