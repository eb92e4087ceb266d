"""#ubuntu IRC chat, in one of three layouts.

- ``messages.jsonl``: one JSON object a line with ``split``, ``user`` and ``text``.
- ``{train,dev,test}/*.raw.txt``, as the disentanglement corpus is published.
- Daily logs, such as ``2013/10/2013-10-11.txt`` or ``2013/10/11/#ubuntu.txt``, as the channel's
  own archive keeps them.

Nicknames are the clients. The official split of whole log excerpts is kept, so held-out users are
mostly new ones; daily logs have none, and each nickname's newest messages are held out. Bots are
left out, by name and by how often they repeat a long message. A nickname that opens a message is
its address, filled in by the chat program: it is not typed text.

References:
    Kummerfeld et al., "A Large-Scale Corpus for Conversation Disentanglement", ACL 2019,
        arXiv:1810.11118.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from edge_client.datasets.reading import find_file, read_rows
from edge_client.datasets.text.folder import text_files
from edge_client.datasets.text.irc_logs import read_log
from edge_client.datasets.text_set import (
    DatasetError,
    FederatedText,
    Sentence,
    add_sentences,
    checked,
    federate,
)

_Split = Literal["train", "dev", "test"]

_FILES = ("messages.jsonl.gz", "messages.jsonl")
_FOLDERS = ("ubuntu_irc", "data")
_DATE_LETTERS = len("2004-12-25")
_SPLITS: tuple[_Split, ...] = ("train", "dev", "test")
_LOG_SUFFIXES = (".txt", ".log")
# 2013-10-11.txt, or 11/#ubuntu.txt in a folder of its year and month.
_DAILY = re.compile(r"(^|/)(\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d/#[^/]+)\.(txt|log)$")
_BOT_NAME = re.compile(r"(l?ubot+u?|floodbot|chanserv|nickserv)\d*", re.IGNORECASE)
_ADDRESSEE = re.compile(r"\s*(\S+?)[:,]\s*")
# A bot says most of its messages more than once, and they are long. People repeat short ones.
_LONG_WORDS = 8
_BOT_LEAST_MESSAGES = 15
_BOT_REPEATED_SHARE = 0.5


class _Message(msgspec.Struct, frozen=True):
    """One message; its ``day``, as ``2004-12-25``, is empty if the order of lines says it."""

    split: _Split
    user: str
    text: str
    day: str = ""


def load(path: Path | None) -> FederatedText:
    """Load the chat from ``path``: a file, its folder, or a folder with ``ubuntu_irc`` in it.

    Raises:
        DatasetError: If there is none of the layouts, or a file is not what its place says.
    """
    messages = _split_messages(path)
    return _by_time(_logged(_daily_logs(path))) if messages is None else _as_split(messages)


def load_by_time(path: Path | None) -> FederatedText:
    """Load the chat with each nickname's newest messages held out, whatever the layout.

    Raises:
        DatasetError: As `load`.
    """
    messages = _split_messages(path)
    if messages is None:
        messages = _logged(_daily_logs(path))
    return _by_time(sorted(messages, key=lambda message: message.day))


def _as_split(rows: Sequence[_Message]) -> FederatedText:
    messages, note = _people_of(rows)
    parts: dict[str, dict[str, list[Sentence]]] = {split: {} for split in _SPLITS}
    for message in messages:
        add_sentences(parts[message.split], message.user, [message.text])
    text = FederatedText(parts["train"], parts["dev"], parts["test"], has_users=True, notes=(note,))
    return checked(text)


def _logged(logs: Sequence[Path]) -> list[_Message]:
    """Return the messages of daily logs, whose paths are in the order of time."""
    return [_Message("train", *said) for log in logs for said in read_log(log)]


def _by_time(rows: Sequence[_Message]) -> FederatedText:
    """Split each nickname's messages, oldest first."""
    messages, note = _people_of(rows)
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for message in messages:
        texts[message.user].append(message.text)
    return federate(texts, [note])


def _split_messages(path: Path | None) -> list[_Message] | None:
    """Return the messages of a layout that has the official split, or None if there is none."""
    if path is not None and path.is_file():
        return None if path.suffix in _LOG_SUFFIXES else list(read_rows(path, _Message))
    for folder in _places(path):
        if any((folder / file).is_file() for file in _FILES):
            return list(read_rows(find_file(folder, "irc", (), _FILES), _Message))
        excerpts = {split: sorted((folder / split).glob("*.raw.txt")) for split in _SPLITS}
        if all(excerpts.values()):
            return [
                _Message(split, *said, day=log.name[:_DATE_LETTERS])
                for split, logs in excerpts.items()
                for log in logs
                for said in read_log(log)
            ]
    return None


def _daily_logs(path: Path | None) -> list[Path]:
    """Return the logs of the layout without a split, oldest first; refuse a folder of none."""
    if path is not None and path.is_file():
        return [path]
    for folder in _places(path):
        if logs := [log for log in text_files(folder) if _DAILY.search(log.as_posix())]:
            return logs
    if path is None:
        raise DatasetError("irc needs a path: give --data or set SOTTO_DATA to a file or folder")
    raise DatasetError(
        f"irc: no {' or '.join(_FILES)}, no folders {', '.join(_SPLITS)} with *.raw.txt, and no "
        f"daily logs such as 2013-10-11.txt in {path} or its folders {', '.join(_FOLDERS)}"
    )


def _places(path: Path | None) -> list[Path]:
    folders = () if path is None else (path, *(path / folder for folder in _FOLDERS))
    return [folder for folder in folders if folder.is_dir()]


def _people_of(rows: Sequence[_Message]) -> tuple[list[_Message], str]:
    """Return the messages of people in their order, and a note on what was left out."""
    nicknames = {row.user.lower() for row in rows}
    said: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        said[row.user].append(_without_addressee(row.text, nicknames))
    bots = {user for user, texts in said.items() if is_bot(user, texts)}
    texts_of = {user: iter(texts) for user, texts in said.items()}
    people = [
        msgspec.structs.replace(row, text=next(texts_of[row.user]))
        for row in rows
        if row.user not in bots
    ]
    return people, f"{len(bots)} bots with {len(rows) - len(people)} messages were left out"


def is_bot(user: str, texts: Sequence[str]) -> bool:
    """Return whether a nickname, or what it says over and over, is a program's."""
    if _BOT_NAME.fullmatch(user):
        return True
    if len(texts) < _BOT_LEAST_MESSAGES:
        return False
    long = Counter(text.lower() for text in texts if len(text.split()) >= _LONG_WORDS)
    repeated = sum(count for count in long.values() if count > 1)
    return repeated > _BOT_REPEATED_SHARE * len(texts)


def _without_addressee(text: str, nicknames: set[str]) -> str:
    match = _ADDRESSEE.match(text)
    if match and match[1].lower() in nicknames:
        return text[match.end() :]
    return text
