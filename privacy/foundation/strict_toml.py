"""TOML from outside, parsed by the one rule for all of it.

Python's parser is quadratic in the parts of a dotted key, recurses as deep as values are nested,
and reads whole numbers of any length. So a text's size and keys are bounded before it is parsed,
and what came out must be as deep and as large as settings are. All of it is one kind of error.

References:
    TOML 1.0.0, https://toml.io: whole numbers are those of 64 bits.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from privacy.foundation.bounded_files import LARGEST_SETTINGS_BYTES, FileTooLargeError, read_bounded

DEEPEST = 16
"""Levels of tables and lists, and parts of a dotted key; settings have at most five."""

_WHOLE_NUMBERS = range(-(1 << 63), 1 << 63)
# Quoted parts only up to a length: of longer ones a text has too few to cost anything, and a search
# for their end would begin at each quote.
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.){0,64}+"|'[^'\n]{0,64}+')"""
# Begins only where a part does, so that a long word is gone over once.
_LONG_KEY = re.compile(rf"""(?<![\w\-"'.])(?:{_PART}[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")


class TomlError(ValueError):
    """Raised when a text is no TOML, or none that settings could be; the text says why."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        TomlError: As `parse_toml`, or if the file is too large or no UTF-8.
        OSError: If it cannot be read.
    """
    try:
        return parse_toml(read_bounded(path, LARGEST_SETTINGS_BYTES).decode())
    except FileTooLargeError as error:
        raise TomlError(error.strerror) from None
    except UnicodeDecodeError as error:
        raise TomlError(f"it must be UTF-8 text, but byte {error.start} is not") from None


# Any: tables hold values of any TOML type.
def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML text as tables.

    Raises:
        TomlError: If it is no TOML, larger than settings are, too deep, or holds a whole number
            beyond 64 bits.
    """
    if len(text) > LARGEST_SETTINGS_BYTES:
        raise TomlError(f"it must have at most {LARGEST_SETTINGS_BYTES} characters")
    if _LONG_KEY.search(text):
        raise TomlError(f"a dotted key must have at most {DEEPEST} parts")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise TomlError(f"it must be at most {DEEPEST} levels deep") from None
    # Beside its own error, Python's for a number of more than 4,300 digits.
    except ValueError as error:
        raise TomlError(str(error)) from None
    _check_values(tables)
    return tables


def _check_values(tables: dict[str, Any]) -> None:
    level: list[object] = [tables]
    for _ in range(DEEPEST + 1):
        level = [inner for value in level for inner in _inner(value)]
        for value in level:
            if isinstance(value, int) and value not in _WHOLE_NUMBERS:
                raise TomlError("a whole number must fit into 64 bits")
        if not level:
            return
    raise TomlError(f"it must be at most {DEEPEST} levels deep")


def _inner(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
