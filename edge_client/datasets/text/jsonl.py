"""The reader's own messages: one JSON object a line with ``user`` and ``text``, oldest first."""

from collections import defaultdict
from pathlib import Path

import msgspec

from edge_client.datasets.reading import find_file, read_rows
from edge_client.datasets.text_set import FederatedText, federate


class _Row(msgspec.Struct, frozen=True):
    user: str | int
    text: str


def load(path: Path | None) -> FederatedText:
    """Load a ``.jsonl`` or ``.jsonl.gz`` file, or a folder's ``messages.jsonl``; ignore extra keys.

    Raises:
        DatasetError: If the file is missing, or a line is no such object; names the line.
    """
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_rows(
        find_file(path, "jsonl", (), ("messages.jsonl", "messages.jsonl.gz")), _Row
    ):
        texts[str(row.user)].append(row.text)
    return federate(texts)
