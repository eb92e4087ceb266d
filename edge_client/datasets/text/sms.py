"""NUS SMS corpus, English: the published XML, zipped or not, or JSON lines made from it.

A JSON line holds ``user``, ``text`` and ``sent``. User ``0`` is a pool of unknown senders and left
out. Messages are in order of the time sent if all of a user's have one, else as in the file. Masks
such as ``<#>`` become ``<unk>``.

References:
    Chen and Kan, "Creating a live, public short message service corpus", Language Resources and
        Evaluation 47, 2013.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from edge_client.datasets.reading import find_file, read_rows
from edge_client.datasets.text.sms_xml import read_messages
from edge_client.datasets.text_set import FederatedText, federate

_FILES = (
    "messages_en.jsonl.gz",
    "messages_en.jsonl",
    "smsCorpus_en*.zip",
    "smsCorpus_en*.xml",
)
_NOBODY = "0"
# 2011.01.06 22:10, with or without seconds: sorts as text.
_SENT = re.compile(r"\d{4}\.\d\d\.\d\d \d\d:\d\d(:\d\d)?")


class _Message(msgspec.Struct, frozen=True):
    user: str
    text: str
    sent: str = ""


def load(path: Path | None) -> FederatedText:
    """Load the messages from ``path``: the file, its folder, or a folder with ``nus_sms`` in it.

    Raises:
        DatasetError: If the file is missing, or is not what its name says.
    """
    by_user: defaultdict[str, list[_Message]] = defaultdict(list)
    for message in _messages(find_file(path, "sms", ("nus_sms",), _FILES)):
        by_user[message.user].append(message)
    pooled = len(by_user.pop(_NOBODY, []))
    texts = {user: [message.text for message in _ordered(own)] for user, own in by_user.items()}
    return federate(texts, [f"{pooled} messages of unknown senders were left out"])


def _messages(file: Path) -> Iterable[_Message]:
    if file.suffix not in {".xml", ".zip"}:
        return read_rows(file, _Message)
    return [
        _Message(user=message.user, text=message.text, sent=message.sent)
        for message in read_messages(file)
    ]


def _ordered(messages: list[_Message]) -> list[_Message]:
    if all(_SENT.fullmatch(message.sent) for message in messages):
        return sorted(messages, key=lambda message: message.sent)
    return messages
