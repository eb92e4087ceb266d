"""The helper's own settings, ``helper.toml``: what its owner lets a coordinator ask."""

from pathlib import Path

import msgspec

from privacy.foundation.host_port import checked_host_port
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, read_toml

_LEAST_CONTRIBUTORS = 2


class HelperSettingsError(ValueError):
    """Raised when the settings cannot be used; the text says why."""


class HelperSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a helper answers, and where. The coordinator has no say in it.

    Attributes:
        listen: ``host:port`` on which it waits for the coordinator.
        least_contributors: Fewest devices of one sum; at least 2.
        largest_rounds_a_day: Most attempts at rounds that it answers in 24 hours; each shows one
            sum (for each group), so this bounds how fast sums can be asked for.
    """

    listen: str
    least_contributors: int
    largest_rounds_a_day: int

    def __post_init__(self) -> None:
        checked_host_port("listen", self.listen)
        if self.least_contributors < _LEAST_CONTRIBUTORS:
            raise ValueError(
                f"least_contributors must be >= {_LEAST_CONTRIBUTORS}, or a sum is one person's "
                f"update, got {self.least_contributors}"
            )
        if self.largest_rounds_a_day < 1:
            raise ValueError(f"largest_rounds_a_day must be >= 1, got {self.largest_rounds_a_day}")

    def encode(self) -> bytes:
        """Return the settings as TOML for their owner to change."""
        return (
            "# The helper reads this when it starts.\n\n"
            "# Where it waits for the coordinator: host:port.\n"
            f'listen = "{self.listen}"\n\n'
            "# Fewest devices of one sum.\n"
            f"least_contributors = {self.least_contributors}\n\n"
            "# Most attempts at rounds that are answered in 24 hours.\n"
            f"largest_rounds_a_day = {self.largest_rounds_a_day}\n"
        ).encode()


def read_helper_settings(path: Path) -> HelperSettings:
    """Read a settings file, strictly; HelperSettingsError if it is missing or cannot be used."""
    try:
        return decoded(read_toml(path), HelperSettings)
    except (TomlError, msgspec.ValidationError) as error:
        raise HelperSettingsError(f"{path}: {error}") from None
    except OSError as error:
        raise HelperSettingsError(
            f"{path} cannot be read: {error.strerror}; make a helper with `sotto-helper init`"
        ) from None
