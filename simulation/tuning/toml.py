"""Write flat TOML tables."""

from collections.abc import Mapping
from typing import Any


# TOML tables hold values of any TOML type.
def table_lines(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return a table of texts, numbers and booleans as lines, an empty one before it."""
    return ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case int() | float():
            return repr(value)
        case _:
            raise TypeError(f"value must be text, a number or a boolean, got {value!r}")
