"""Checks of settings by name, each of which raises ``ValueError``. No torch."""

import math
import re


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Check that settings are not below a number."""
    for name in names:
        if getattr(settings, name) < least:
            raise ValueError(f"{name} must be >= {least}, got {getattr(settings, name)}")


def check_positive(settings: object, *names: str) -> None:
    """Check that settings are > 0 and finite, or absent."""
    for name in names:
        value = getattr(settings, name)
        # Written so that NaN is refused too, here and below.
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value}")


def check_not_negative(settings: object, *names: str) -> None:
    """Check that settings are >= 0 and finite."""
    for name in names:
        if not 0 <= getattr(settings, name) < math.inf:
            raise ValueError(f"{name} must be >= 0 and finite, got {getattr(settings, name)}")


def check_below_one(settings: object, *names: str) -> None:
    """Check that settings are in [0, 1), such as a dropout's probability."""
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise ValueError(f"{name} must be in [0, 1), got {getattr(settings, name)}")


def check_hex(settings: object, digits: int, *names: str) -> None:
    """Check that settings are so many lower-case hexadecimal digits."""
    for name in names:
        value = getattr(settings, name)
        if re.fullmatch(f"[0-9a-f]{{{digits}}}", value) is None:
            raise ValueError(f"{name} must be {digits} lower-case hex digits, got {value[:80]!r}")
