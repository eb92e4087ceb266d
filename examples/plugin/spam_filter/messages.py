"""Messages as JSON lines, and the counts of their words."""

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import torch

from models.tasks.rows import Rows
from models.tasks.unusable_examples import UnusableExamplesError

LARGEST_BYTES = 64 << 20
_WORD = re.compile(r"\w+")


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message that a person got, and whether they called it spam."""

    text: str
    spam: bool


def read_messages(path: Path) -> list[Message]:
    """Read a file of messages, oldest first.

    Raises:
        UnusableExamplesError: If it is none; names the line, never what it says.
    """
    if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
        raise UnusableExamplesError(
            f"the messages must be a file of JSON lines of at most {LARGEST_BYTES} bytes"
        )
    return list(_decoded(path.read_bytes().splitlines()))


def counted(messages: Iterable[Message], bucket_count: int) -> Rows:
    """Return counts, float32 ``(messages, buckets)``, and 1 for spam, int64 ``(messages,)``."""
    found = list(messages)
    counts = torch.zeros(len(found), bucket_count)
    for row, message in enumerate(found):
        for word in _WORD.findall(message.text.lower()):
            # The same bucket on every machine, which Python's own hash is not.
            counts[row, zlib.crc32(word.encode()) % bucket_count] += 1
    return Rows((counts, torch.tensor([int(message.spam) for message in found])))


def _decoded(lines: Iterable[bytes]) -> Iterator[Message]:
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=Message)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UnusableExamplesError(f"line {number} of the messages is no message") from None
