"""Every text data set by name; a new one is a file with a ``load`` function and a line here."""

from collections.abc import Mapping
from pathlib import Path

from edge_client.datasets import folder, irc, jsonl, manual, ptb, reddit, sms, wikitext2
from edge_client.datasets.federated_text import DatasetError, FederatedText, Loader

DATASETS: Mapping[str, Loader] = {
    "manual": manual.load,
    "ptb": ptb.load,
    "wikitext2": wikitext2.load,
    "reddit": reddit.load,
    "sms": sms.load,
    "irc": irc.load,
    "folder": folder.load,
    "jsonl": jsonl.load,
}


def load_dataset(name: str, path: Path | None = None) -> FederatedText:
    """Load a data set from its official layout.

    Args:
        name: A key of `DATASETS`.
        path: Folder or file of the set, or a folder that holds several sets; not needed by
            ``manual``.

    Raises:
        DatasetError: If the name is unknown or the set cannot be loaded.
    """
    if name not in DATASETS:
        raise DatasetError(f"data set must be one of {', '.join(DATASETS)}, got {name!r}")
    return DATASETS[name](path)
