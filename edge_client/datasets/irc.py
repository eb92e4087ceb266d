"""#ubuntu IRC chat: one JSON object a line with ``split``, ``user`` and ``text``.

Nicknames are the clients, and the official split of whole log excerpts is kept, so held-out users
are mostly new ones. Bots are left out, by name and by how often they repeat a long message. A
nickname that opens a message is its address, filled in by the chat program: it is not typed text.

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

from edge_client.datasets.federated_text import FederatedText, Sentence, add_sentences, checked
from edge_client.datasets.reading import find_file, read_rows

_FILES = ("messages.jsonl.gz", "messages.jsonl")
_BOT_NAME = re.compile(r"(l?ubot+u?|floodbot|chanserv|nickserv)\d*", re.IGNORECASE)
_ADDRESSEE = re.compile(r"\s*(\S+?)[:,]\s*")
# A bot says most of its messages more than once, and they are long. People repeat short ones.
_LONG_WORDS = 8
_BOT_LEAST_MESSAGES = 15
_BOT_REPEATED_SHARE = 0.5


class _Message(msgspec.Struct, frozen=True):
    """Hold one message.

    Attributes:
        split: Part of the official split.
        user: Nickname.
        text: What was said, without the nickname it is addressed to.
    """

    split: Literal["train", "dev", "test"]
    user: str
    text: str


def load(path: Path | None) -> FederatedText:
    """Load the chat from ``path``: the file, its folder, or a folder with ``ubuntu_irc`` in it.

    Raises:
        DatasetError: If the file is missing or a line is no message.
    """
    messages, notes = _people_of(path)
    parts: dict[str, dict[str, list[Sentence]]] = {"train": {}, "dev": {}, "test": {}}
    for message in messages:
        add_sentences(parts[message.split], message.user, [message.text])
    text = FederatedText(
        parts["train"], parts["dev"], parts["test"], has_users=True, notes=(notes,)
    )
    return checked(text)


def _people_of(path: Path | None) -> tuple[list[_Message], str]:
    """Return the messages of people in their order, and a note on what was left out.

    Raises:
        DatasetError: As `load`.
    """
    rows = list(read_rows(find_file(path, "irc", ("ubuntu_irc",), _FILES), _Message))
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
