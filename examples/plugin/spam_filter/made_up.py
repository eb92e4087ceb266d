"""Messages that nobody wrote, for tests and for a first look: drawn from two lists of phrases.

python -m spam_filter.made_up FOLDER   # a file of messages for each of eight people
"""

import random
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .messages import Message

PEOPLE = ("ada", "ben", "cleo", "dan", "eve", "finn", "gita", "hugo")
MESSAGES = 60

_USUAL = (
    *("are you home for dinner", "the meeting is at nine", "thank you for the book"),
    *("can you buy bread and milk", "see you at the station", "the train is late again"),
    *("how was the test", "mum asks when you call", "i left the keys with anna"),
)
_SPAM = (
    *("you won a free prize", "claim your cash now", "cheap loans without questions"),
    *("click here to unlock your account", "hot offer only today", "free entry text now"),
    *("your parcel waits pay the fee", "win a phone for free", "invest now and double it"),
)
_SIGNS = ("", "ok", "please", "now", "today", "again", "so")


def messages_of(person: str) -> list[Message]:
    """Return a person's messages, the same every time: a third are spam, one in twenty is wrong."""
    draw = random.Random(person)  # noqa: S311  # nothing secret
    made = []
    for _ in range(MESSAGES):
        is_spam = draw.random() < 1 / 3
        text = f"{draw.choice(_SPAM if is_spam else _USUAL)} {draw.choice(_SIGNS)}".strip()
        made.append(Message(text=text, spam=is_spam != (draw.random() < 1 / 20)))
    return made


def everybody() -> Mapping[str, list[Message]]:
    """Return the messages of eight people by name."""
    return {person: messages_of(person) for person in PEOPLE}


def write_messages(folder: Path) -> None:
    """Write each person's messages as ``PERSON.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    for person, messages in everybody().items():
        lines = b"".join(msgspec.json.encode(message) + b"\n" for message in messages)
        (folder / f"{person}.jsonl").write_bytes(lines)


if __name__ == "__main__":
    write_messages(Path(sys.argv[1]))
