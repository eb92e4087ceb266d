"""Strict decoding of settings, which says of what is refused what may stand in its place."""

from typing import TypeVar

import msgspec

from privacy.foundation.removed_settings import check_removed

T = TypeVar("T")


def decoded(tables: object, wanted: type[T]) -> T:
    """Return tables, lists and plain values, as TOML has them, as a type of settings.

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
