"""Decode settings strictly, and say of what is refused what may stand in its place."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")

_OTHER_RULES = 'aggregation.rule = "trimmed-attentive" or "geometric-median"'
# What was removed, by table, key and value, and what to use instead.
_REMOVED = {
    ("aggregation", "rule", "centred-clipping"): _OTHER_RULES,
    ("aggregation", "rule", "norm-bounded"): _OTHER_RULES,
}


def check_removed(tables: object) -> None:
    """Refuse settings that sotto had once.

    Args:
        tables: Tables, lists and plain values, as TOML has them.

    Raises:
        ValidationError: msgspec's, if one is set; names it and what to use instead.
    """
    for (table, key, value), instead in _REMOVED.items():
        settings = tables.get(table) if isinstance(tables, Mapping) else None
        if isinstance(settings, Mapping) and settings.get(key) == value:
            raise msgspec.ValidationError(
                f'{table}.{key} = "{value}" was removed from sotto; use {instead}'
            )


def decoded(tables: object, wanted: type[T]) -> T:
    """Return tables as a type.

    Args:
        tables: Tables, lists and plain values, as TOML has them.
        wanted: A type of settings.

    Raises:
        ValidationError: msgspec's, if a setting is unknown, removed, missing, of the wrong type or
            out of range; names what is allowed where the type says so.
    """
    check_removed(tables)
    try:
        return msgspec.convert(tables, wanted, strict=True)
    except msgspec.ValidationError as error:
        # Loaded for who is refused alone: a resting device is small, and commands start fast.
        from privacy.foundation.decoding_errors import explained

        raise msgspec.ValidationError(explained(error, tables, wanted)) from None
