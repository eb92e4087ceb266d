"""The form of every text data set: sentences by user, in three parts that never mix."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from models.text.private_text import training_sentences

Sentence = list[str]
UserText = Mapping[str, list[Sentence]]

Item = TypeVar("Item")

# Users with less than this keep everything for training: a tenth of it would be nothing.
LEAST_TO_SPLIT = 10


class DatasetError(ValueError):
    """Raised when text cannot be loaded; names the file, the line and what is wrong, no text."""


@dataclass(frozen=True)
class FederatedText:
    """One data set: for each user the sentences of each part.

    Attributes:
        train: Sentences to train on; every user has at least one.
        valid: Sentences for choosing settings and the best round.
        test: Sentences scored once, at the end.
        has_users: Whether users are persons, roles or topics; else the set is dealt at random.
        notes: Things left out and why, one line each, for the run's report.
    """

    train: UserText
    valid: UserText
    test: UserText
    has_users: bool
    notes: tuple[str, ...] = ()


Loader = Callable[[Path | None], FederatedText]


def split_in_order(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item], Sequence[Item]]:
    """Cut one user's items, oldest first, into the first 80 %, the next 10 % and the last 10 %.

    Fewer than `LEAST_TO_SPLIT` items are all for training. A keyboard, too, predicts later text.
    """
    if len(items) < LEAST_TO_SPLIT:
        return items, items[:0], items[:0]
    tenth = len(items) // 10
    return items[: -2 * tenth], items[-2 * tenth : -tenth], items[-tenth:]


def federate(texts: Mapping[str, Sequence[str]], notes: Iterable[str] = ()) -> FederatedText:
    """Split each user's typed texts, oldest first, by `split_in_order` and into sentences.

    Raises:
        DatasetError: If no user has a word to train on.
    """
    parts: tuple[dict[str, list[Sentence]], ...] = ({}, {}, {})
    for user, typed in texts.items():
        for part, items in zip(parts, split_in_order(typed), strict=True):
            add_sentences(part, user, items)
    train, valid, test = parts
    # A user known only from held-out text would be scored but never trained.
    for part in (valid, test):
        for user in part.keys() - train.keys():
            del part[user]
    return checked(FederatedText(train, valid, test, has_users=True, notes=tuple(notes)))


def add_sentences(part: dict[str, list[Sentence]], user: str, typed: Iterable[str]) -> None:
    """Add the sentences of typed texts to a user's; a user without any word is not added.

    What is private is cut, as on a device whose owner changed nothing.
    """
    sentences = [sentence for text in typed for sentence in training_sentences(text)]
    if sentences:
        part.setdefault(user, []).extend(sentences)


def checked(text: FederatedText) -> FederatedText:
    """Return ``text`` if there is something to train on.

    Raises:
        DatasetError: If the training part has no word.
    """
    if not any(sentence for sentences in text.train.values() for sentence in sentences):
        raise DatasetError("the training text must have at least one word, got none")
    return text
