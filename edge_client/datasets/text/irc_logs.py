"""Read raw IRC logs: text files with ``[hh:mm] <nickname> text`` on a line, one file a day.

Joins and parts (``=== ...``) and actions (``[hh:mm]  * nickname ...``) are not typed sentences and
are passed over. A line that is not UTF-8 is read as Latin-1, as its writer's program meant it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from edge_client.datasets.text_set import DatasetError

# A busy day of #ubuntu has less than 1 MB.
LARGEST_BYTES = 64 << 20
# Before the nickname, some programs put the sign of a channel's operator or speaker.
_SAID = re.compile(r"\[\d\d:\d\d(?::\d\d)?\] <[@+%~& ]?([^>\s]+)> ?(.*)")
_STAMPED = re.compile(rb"\[\d\d:\d\d(?::\d\d)?\] ")


def read_log(path: Path) -> Iterator[tuple[str, str]]:
    """Yield nickname and text of each message, in their order.

    Raises:
        DatasetError: If the file cannot be read, is too large, is binary, or is no such log.
    """
    content = _content(path)
    lines = content.splitlines()
    if content.strip() and not any(_STAMPED.match(line) for line in lines):
        raise DatasetError(f"{path} is no IRC log: no line begins with [hh:mm]")
    for line in lines:
        if said := _SAID.fullmatch(_decoded(line)):
            yield said[1], said[2]


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise DatasetError(f"{path} must have at most {LARGEST_BYTES >> 20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from None
    if (nul := content.find(b"\0")) >= 0:
        raise DatasetError(f"{path} must be text, but byte {nul} is zero: it is a binary file")
    return content


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")
