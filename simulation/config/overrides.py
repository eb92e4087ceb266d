"""Change single settings of a configuration: ``aggregation.attention_strength=0.5``.

A value is TOML, or else a plain word, so ``data.partition=users`` needs no quotes. A sweep gives
several values with commas between them.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from privacy.foundation.strict_toml import TomlError, parse_toml

_OPENING, _CLOSING = "[{", "]}"


class Override(NamedTuple):
    """A setting by its path, such as ``("rounds", "cap")``, and at least one TOML value to take."""

    path: tuple[str, ...]
    # A TOML value: text, number, boolean, list or table.
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Return the path as it is written."""
        return ".".join(self.path)


def parse_override(text: str) -> Override:
    """Read ``path=value`` or ``path=value,value``.

    Raises:
        ValueError: If there is no ``=``, an empty key or no value.
    """
    name, separator, rest = text.partition("=")
    path = tuple(key.strip() for key in name.split("."))
    values = tuple(_value(part) for part in _split(rest))
    if not separator or not all(path) or not values:
        raise ValueError(f"a setting must read like rounds.cap=10 or rounds.cap=10,20, got {text}")
    return Override(path, values)


# The dictionaries below are TOML tables: their values are of any TOML type.
def with_setting(tables: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Return a copy of a TOML document with one setting changed or added; None leaves it out.

    Raises:
        ValueError: If the path leads through something that is no table.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(tables))
    table = changed
    for key in path[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ValueError(f"{'.'.join(path)}: {key} is a value, not a table")
    if value is None:
        table.pop(path[-1], None)
    else:
        table[path[-1]] = value
    return changed


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    parts, start, depth, quote = [], 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in _OPENING) - (letter in _CLOSING)
        if letter == "," and depth == 0 and not quote:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _value(text: str) -> Any:  # A TOML value of any type.
    try:
        return parse_toml(f"value = {text}")["value"]
    except TomlError:
        return text
