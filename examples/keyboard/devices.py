"""Deal topics of the manual that ships inside Python to five devices."""

from dataclasses import dataclass
from pathlib import Path

from edge_client.datasets.registry import load_dataset

WORDS_EACH = 600
"""Words that a device has at least: a round of ten then takes an old processor a few seconds."""


@dataclass(frozen=True)
class Deal:
    """Say who holds what.

    Attributes:
        folders: Each device's own text, a folder for each device.
        topics: How many topics each device holds.
        held_out: Sentences that no device has; the model is scored on them.
    """

    folders: tuple[Path, ...]
    topics: tuple[int, ...]
    held_out: tuple[list[str], ...]


def deal(folder: Path, device_count: int) -> Deal:
    """Write each device's text below ``folder``; the rest of the manual stays out."""
    text = load_dataset("manual")
    hands: list[list[str]] = [[] for _ in range(device_count)]
    words = [0] * device_count
    # Each topic to the device that has least: topics stay whole.
    for topic in sorted(text.train):
        lightest = words.index(min(words))
        if words[lightest] >= WORDS_EACH:
            break
        hands[lightest].append(topic)
        words[lightest] += _word_count(text.train[topic])
    folders = []
    for number, topics in enumerate(hands, start=1):
        own = folder / f"device-{number:04d}" / "text"
        own.mkdir(parents=True)
        folders.append(own)
        for topic in topics:
            lines = [" ".join(sentence) for sentence in text.train[topic]]
            (own / f"{topic}.txt").write_text("\n".join(lines), encoding="utf-8")
    held_out = tuple(sentence for topic in text.test.values() for sentence in topic)
    return Deal(tuple(folders), tuple(len(topics) for topics in hands), held_out)


def _word_count(sentences: list[list[str]]) -> int:
    return sum(len(sentence) for sentence in sentences)
