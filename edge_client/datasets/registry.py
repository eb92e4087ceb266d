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


_BY_USER_TIME: Mapping[str, Loader] = {
    name: DATASETS[name] for name in ("manual", "sms", "folder", "jsonl")
} | {"irc": irc.load_by_time}


def load_by_user_time(name: str, path: Path | None = None) -> FederatedText:
    """Load a data set with every user's newest fifth held out: a tenth to validate, one to test.

    Args:
        name: A key of `DATASETS` whose text has users and an order.
        path: As for `load_dataset`.

    Raises:
        DatasetError: If the set cannot be split so, or cannot be loaded.
    """
    if name not in _BY_USER_TIME:
        raise DatasetError(
            f"data set must be one of {', '.join(sorted(_BY_USER_TIME))} to be split by each "
            f"user's time, got {name!r}"
        )
    return _BY_USER_TIME[name](path)


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
