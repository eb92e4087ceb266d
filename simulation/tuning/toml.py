"""Write flat TOML tables."""

from collections.abc import Mapping
from typing import Any


# TOML tables hold values of any TOML type.
def table_lines(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return a table of texts, numbers, booleans and rows of them, an empty line before it."""
    return ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case int() | float():
            return repr(value)
        case tuple():
            return f"[{', '.join(_value(item) for item in value)}]"
        case _:
            raise TypeError(f"value must be text, a number, a boolean or a row, got {value!r}")
