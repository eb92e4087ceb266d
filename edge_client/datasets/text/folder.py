"""A folder of the reader's own text files: each file, or each subfolder of files, is one user."""

from collections.abc import Iterator
from pathlib import Path

from edge_client.datasets.reading import read_text
from edge_client.datasets.text_set import DatasetError, FederatedText, federate


def load(path: Path | None) -> FederatedText:
    """Load a folder; each user's lines are split in their order, files in order of their names.

    A file in it, or a subfolder with all files below, is a user. Dotted names are passed over.

    Raises:
        DatasetError: If there is no folder, no file in it, a file that is no text, or no word.
    """
    if path is None:
        raise DatasetError("folder needs a path: give --data or set SOTTO_DATA")
    if not path.is_dir():
        raise DatasetError(f"folder: {path} must be a folder of text files")
    texts: dict[str, list[str]] = {}
    for entry in sorted(path.iterdir()):
        if not entry.name.startswith("."):
            files = list(text_files(entry)) if entry.is_dir() else [entry]
            lines = [line for file in files for line in read_text(file).splitlines()]
            if entry.is_dir() and not files:
                continue
            name = entry.name if entry.is_dir() else entry.stem
            if name in texts:
                raise DatasetError(f"folder: {path} has two users named {name}; rename one")
            texts[name] = [line for line in lines if line.strip()]
    if not texts:
        raise DatasetError(f"folder: {path} is empty; put one text file a user in it")
    return federate(texts)


def text_files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder in order of their paths, dotted names passed over."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from text_files(entry)
        elif entry.is_file():
            yield entry
