"""Check cheaply that a device has data, before it takes a place in a round and has the plan."""

from pathlib import Path

from edge_client.datasets.text.folder import text_files
from edge_client.datasets.text_set import DatasetError

_TEXT_ENDINGS = (".txt", ".jsonl")
_HEAD_BYTES = 1 << 16


def check_data_at_hand(data: Path) -> None:
    """Accept a folder with a file in it, or a file that has content.

    Raises:
        DatasetError: If there is nothing, or a file that is named as text is binary.
    """
    try:
        if data.is_dir():
            if next(text_files(data), None) is None:
                raise DatasetError(f"{data} is empty; put this person's files in it")
            return
        with data.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise DatasetError(f"--data must be a folder or a file that exists: {data}") from None
    except OSError as error:
        raise DatasetError(f"{data} cannot be read: {error.strerror}") from None
    if not head:
        raise DatasetError(f"{data} is empty")
    if data.resolve().name.endswith(_TEXT_ENDINGS) and (nul := head.find(b"\0")) >= 0:
        raise DatasetError(f"{data} must be text, but byte {nul} is zero: it is a binary file")
