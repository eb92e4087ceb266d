"""Find and read text files, and say clearly which file, line or byte is wrong.

Messages name files, lines and offsets, never what is written there: the text may be a person's.
"""

import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from edge_client.datasets.text_set import DatasetError, Sentence
from privacy.foundation.bounded_files import read_bounded
from privacy.foundation.strict_json import decode_json

Row = TypeVar("Row")

LARGEST_TEXT_BYTES = 2 << 30
"""A bound for one file of text; all of Ubuntu's logs since 2004 have less."""

# Text is packed to a third or a tenth of its size.
_ALWAYS_BYTES = 16 << 20
_LARGEST_RATIO = 24
_LONGEST_ROW_BYTES = 64 << 20


def find_folder(path: Path | None, name: str, folders: Sequence[str], files: Sequence[str]) -> Path:
    """Return the folder that holds all of ``files``: ``path`` itself or one of ``folders`` in it.

    Raises:
        DatasetError: If there is none; lists what was looked for.
    """
    if path is None:
        raise DatasetError(f"{name} needs a path: give --data or set SOTTO_DATA; {_wanted(files)}")
    for folder in (path, *(path / inner for inner in folders)):
        if all((folder / file).is_file() for file in files):
            return folder
    raise DatasetError(f"{name}: {path} {_wanted(files)}, or a folder {' or '.join(folders)} has")


def find_file(path: Path | None, name: str, folders: Sequence[str], files: Sequence[str]) -> Path:
    """Return the first of ``files`` in ``path`` or its ``folders``; ``path`` may be the file.

    A name may be a pattern, such as ``smsCorpus_en*.zip``; the last match is taken.

    Raises:
        DatasetError: If there is none; lists what was looked for.
    """
    if path is None:
        raise DatasetError(
            f"{name} needs a path: give --data or set SOTTO_DATA to a file or folder"
        )
    if path.is_file():
        return path
    for folder in (path, *(path / inner for inner in folders)):
        for file in files:
            if found := sorted(entry for entry in folder.glob(file) if entry.is_file()):
                return found[-1]
    places = ", ".join([str(path), *(str(path / inner) for inner in folders)])
    raise DatasetError(f"{name}: no {' or '.join(files)} in {places}")


def read_text(path: Path) -> str:
    """Return a whole text file, gunzipped where its name ends with ``.gz``.

    Raises:
        DatasetError: If the file is missing, damaged, binary or not UTF-8.
    """
    try:
        content = read_bounded(path, LARGEST_TEXT_BYTES)
        if path.suffix == ".gz":
            content = _unpacked(content, path)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is damaged: {error}") from None
    return decode_text(content, path)


def _unpacked(packed: bytes, path: Path) -> bytes:
    """Return what a gzipped text unpacks to, which must be no more than texts do."""
    import gzip  # here, since the resting agent reads this module for its settings

    largest = min(LARGEST_TEXT_BYTES, _ALWAYS_BYTES + _LARGEST_RATIO * len(packed))
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        content = stream.read(largest + 1)
    if len(content) > largest:
        raise DatasetError(f"{path} must unpack to at most {largest} bytes")
    return content


def decode_text(content: bytes, path: Path) -> str:
    """Return bytes read from ``path`` as text.

    Raises:
        DatasetError: If they are binary or not UTF-8; names the file and the byte's place.
    """
    if (nul := content.find(b"\0")) >= 0:
        raise DatasetError(f"{path} must be text, but byte {nul} is zero: it is a binary file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} must be UTF-8 text, but byte {error.start} is not; convert it first"
        ) from None


def read_word_lines(path: Path) -> list[Sentence]:
    """Return each line's words as they stand, split at white space; an empty line is empty.

    Raises:
        DatasetError: As `read_text`.
    """
    lines = read_text(path).split("\n")
    if not lines[-1]:
        lines.pop()
    # One object a word type instead of one a word, and one for all empty lines: a quarter of the
    # memory.
    empty: Sentence = []
    same: dict[str, str] = {}
    return [
        [same.setdefault(word, word) for word in line.split()] if line else empty for line in lines
    ]


def read_rows(path: Path, row_type: type[Row]) -> Iterator[Row]:
    """Yield the JSON object on each line of a file; blank lines are passed over.

    Raises:
        DatasetError: As `read_text`, or if a line is no such object; names the line.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                yield decode_json(line, row_type, at_most=_LONGEST_ROW_BYTES)
            except msgspec.DecodeError as error:
                raise DatasetError(f"{path}, line {number}: {error}") from None


def _wanted(files: Sequence[str]) -> str:
    return f"must hold {', '.join(files)}"
