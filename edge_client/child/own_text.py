"""Turn a device's own text into the word streams that a plan trains and scores on.

`edge_client.datasets.text_set.split_in_order` splits it, so a device and a simulation of it train
on the same text. What is private is cut (`models.text.private_text`), unless the owner keeps it in.
The newest fifth is held out and read by plans of kind ``evaluate`` only. Where the plan hides
single sentences (``example_privacy``), a cut by position would break the promise, as one more
sentence moves others across it. There, a sentence's own words decide.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from edge_client.datasets.text_set import DatasetError, split_in_order
from edge_client.owner.typed_text import LocalText, StoredText, TextSettings, read_texts
from models.text.languages import letters_told
from models.text.private_text import KINDS, cut_private, training_sentences
from models.text.vocabulary import EOS, Vocabulary


class OwnText:
    """One person's text within their limits: ``train``, oldest first, then ``held_out``."""

    def __init__(
        self,
        typed: Sequence[StoredText],
        kept: LocalText | None,
        limits: TextSettings,
        *,
        each_alone: bool = False,
    ) -> None:
        """Take texts, oldest first, and the file they can be removed from, if any."""
        self.train, *held_out = split_in_order(typed)
        self.held_out = [stored for part in held_out for stored in part]
        self._typed = typed
        self._kept = kept
        self._limits = limits
        self._each_alone = each_alone

    @classmethod
    def read(
        cls, data: Path, limits: TextSettings, *, now: float, each_alone: bool = False
    ) -> Self:
        """Read a person's text; what the limits exclude is removed from a JSONL file.

        Args:
            data: A JSONL file (`edge_client.owner.typed_text`), to which the limits apply; or,
                whole, a folder of text files, a text file, or a gzipped JSONL file.
            now: Seconds since 1970 UTC.
            each_alone: Hold out by sentence, so that one more changes nothing about the others.

        Raises:
            DatasetError: If the text cannot be read.
        """
        kept = LocalText(data, limits) if data.name.endswith(".jsonl") else None
        if kept is not None and limits.removes_some and data.exists():
            kept.tidy(now=now)
        return cls(read_texts(data, limits, now=now), kept, limits, each_alone=each_alone)

    def training_examples(self, words: Vocabulary) -> Tensor:
        """Return the stream to train on: int64, shape ``(tokens,)``.

        Where sentences are hidden one by one, a text without a known word is examples like any: one
        sentence with such a word must not decide whether all the others count.

        Raises:
            DatasetError: If no word of the vocabulary is left to train on.
        """
        sentences = self._sentences(held_out=False)
        if self._each_alone:
            return torch.tensor(words.token_stream(sentences), dtype=torch.int64)
        return _stream(sentences, words, "train on")

    def held_out_examples(self, words: Vocabulary) -> Tensor:
        """Return the stream to score on: int64, shape ``(tokens,)``; not trained on this round.

        Raises:
            DatasetError: If it has no word of the vocabulary; little text is not held out.
        """
        return _stream(self._sentences(held_out=True), words, "score on")

    def letters(self, *, held_out: bool) -> str:
        """Return the text to train or score on, letter by letter; all white space is one blank.

        What is private is cut without a trace: an alphabet has no letter for it.
        """
        kinds = [kind for kind in KINDS if kind not in self._limits.keep]
        typed = self.held_out if held_out else self.train
        open_text = (cut_private(stored.text, kinds, mask=" ")[0] for stored in typed)
        return " ".join(word for text in open_text for word in text.split())

    def _sentences(self, *, held_out: bool) -> list[list[str]]:
        if self._each_alone:
            found = self._split(self._typed)
            return [sentence for sentence in found if _is_held_out(sentence) is held_out]
        return self._split(self.held_out if held_out else self.train)

    def _split(self, typed: Sequence[StoredText]) -> list[list[str]]:
        return [
            sentence
            for stored in typed
            for sentence in training_sentences(stored.text, self._limits.keep)
        ]

    def delete_trained(self) -> None:
        """Remove what was trained on, where the owner says so; call once the update is sealed.

        Raises:
            DatasetError: If the file was damaged in between; nothing is removed.
        """
        if self._kept is None or not self._limits.delete_after_use:
            return
        if self._each_alone:
            self._kept.delete([one for one in self._typed if not self._is_only_scored(one)])
        else:
            self._kept.delete(self.train)

    def _is_only_scored(self, stored: StoredText) -> bool:
        sentences = self._split([stored])
        return bool(sentences) and all(map(_is_held_out, sentences))


def training_examples(data: Path, words: Vocabulary) -> Tensor:
    """Return the stream that a device without limits trains on: int64, shape ``(tokens,)``.

    Raises:
        DatasetError: As `OwnText.read` and `OwnText.training_examples`.
    """
    return OwnText.read(data, TextSettings(), now=0.0).training_examples(words)


def _is_held_out(sentence: list[str]) -> bool:
    """Return whether a sentence is of the fifth to score on: a matter of its words alone."""
    digest = hashlib.sha256(" ".join(sentence).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 5 == 0


def _stream(sentences: Sequence[list[str]], words: Vocabulary, purpose: str) -> Tensor:
    stream = torch.tensor(words.token_stream(sentences), dtype=torch.int64)
    if not (stream > EOS).any():
        raise DatasetError(
            f"the device's text must have a word of the vocabulary to {purpose}; its letters are "
            f"{letters_told(sentences)}; `sotto-client doctor` with --data says what there is"
        )
    return stream
