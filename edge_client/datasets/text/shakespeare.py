"""Shakespeare's plays by speaking role: ``roles.jsonl``, or the ``all_data.json`` of [LEAF].

A role of a play is a user. Its lines are joined by blanks in the order of the play, and runs of
white space become one blank, as [LEAF] and FedTP do.

References:
    [LEAF] Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018, arXiv:1812.01097.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from edge_client.datasets.character_set import CharacterText
from edge_client.datasets.reading import LARGEST_TEXT_BYTES, find_file, read_rows, read_text
from edge_client.datasets.text_set import DatasetError
from privacy.foundation.strict_json import decode_json

_LEAF_FILES = ("all_data.json", "all_data/all_data.json", "data/all_data/all_data.json")
_FILES = ("roles.jsonl.gz", "roles.jsonl", *_LEAF_FILES)


class _Role(msgspec.Struct, frozen=True):
    """One line of ``roles.jsonl``: each speech is its place in the play, and lines."""

    user: str
    speeches: list[tuple[int, list[str]]]


class _LeafUser(msgspec.Struct, frozen=True):
    """One user of [LEAF]: the text, or windows of it (``x``) and the letter after each."""

    raw: str | None = None
    x: list[str] = []
    y: list[str] = []


class _Leaf(msgspec.Struct, frozen=True):
    users: list[str]
    user_data: dict[str, _LeafUser]


def load(path: Path | None) -> CharacterText:
    """Load the roles from ``path``: a file, its folder, or a folder with ``shakespeare`` in it.

    Raises:
        DatasetError: If the file is missing or damaged, is not what its name says, or is empty.
    """
    file = find_file(path, "shakespeare", ("shakespeare",), _FILES)
    raw = _leaf(file) if file.suffix == ".json" else _roles(file)
    texts = {user: joined for user, text in raw.items() if (joined := " ".join(text.split()))}
    if not texts:
        raise DatasetError(f"{file} must have a role that says something, got none")
    silent = len(raw) - len(texts)
    return CharacterText(
        texts, (f"{silent} roles that say nothing were left out",) if silent else ()
    )


def _roles(file: Path) -> dict[str, str]:
    return {
        role.user: "\n".join(line for _, lines in sorted(role.speeches) for line in lines)
        for role in read_rows(file, _Role)
    }


def _leaf(file: Path) -> dict[str, str]:
    try:
        leaf = decode_json(read_text(file), _Leaf, at_most=LARGEST_TEXT_BYTES)
    except msgspec.DecodeError as error:
        raise DatasetError(f"{file}: {error}") from None
    missing = [user for user in leaf.users if user not in leaf.user_data]
    if missing:
        raise DatasetError(f"{file} must have data of each of its users, {len(missing)} lack it")
    return {user: _text_of(leaf.user_data[user], file) for user in leaf.users}


def _text_of(user: _LeafUser, file: Path) -> str:
    """Return the text, put together again where only windows of it were kept."""
    if user.raw is not None:
        return user.raw
    if len(user.x) != len(user.y) or not _are_neighbours(user.x, user.y):
        raise DatasetError(
            f"{file} must hold every window of a user's text in order, or the text itself; "
            "make it with all of the data and --raw"
        )
    return user.x[0] + "".join(user.y) if user.x else ""


def _are_neighbours(windows: Sequence[str], letters: Sequence[str]) -> bool:
    """Return whether each window is the one before it, moved by one letter."""
    return all(
        before[1:] + letter == after
        for before, letter, after in zip(windows, letters, windows[1:], strict=False)
    )
