"""The settings that a device's owner keeps in ``client.toml``."""

from pathlib import Path

import msgspec

from edge_client.owner.policy import PolicySettings
from edge_client.owner.typed_text import TextSettings
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.host_port import checked_addresses
from privacy.foundation.strict_decoding import decoded
from privacy.foundation.strict_toml import TomlError, read_toml

# What `write_starting_settings` writes: the defaults, for the owner to change.
STARTING_SETTINGS = """\
# The coordinator's addresses in place of the invite's, in the order in which they are tried.
# coordinator = ["fl1.example.org:7441", "fl2.example.org:7441"]

# Seconds that the training process stays in memory after a round (about 250 MB); 0 ends it.
keep_warm_s = 0.0

# When this device may work. A sensor that cannot know counts as "allow" or "wait".
[policy]
charging = true
idle = true
unmetered = true
unknown = "allow"
# least_battery_percent = 50.0
# largest_temperature_c = 40.0
# window = "22:00-06:30"

# What is kept of the text in a JSONL file; what is outside a limit is removed from the file.
[text]
delete_after_use = false
# retention_days = 30.0
# largest_bytes = 5_000_000
# largest_texts = 20_000
# What is private is cut from text to train on; a kind named here is left in. The kinds: "names"
# behind titles, street "addresses", "cards", "emails", "links", "numbers".
# keep = ["names"]
"""


class ClientSettingsError(ValueError):
    """Raised when ``client.toml`` cannot be used; names the file and the key."""


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The owner's rules for when a device works and which of its text is kept.

    Attributes:
        policy: When the device works.
        text: Which of its text is kept, and what is cut from it.
        keep_warm_s: Seconds for which training stays in memory after a round (about 250 MB); 0
            ends it at once.
        coordinator: The coordinator's listeners for devices, ``host:port``, in place of the
            enrolment's.
    """

    policy: PolicySettings = PolicySettings()
    text: TextSettings = TextSettings()
    keep_warm_s: float = 0.0
    coordinator: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.keep_warm_s <= 86_400:
            raise ValueError(f"keep_warm_s must be in [0, 86400], got {self.keep_warm_s}")
        if self.coordinator is not None:
            checked_addresses("coordinator", self.addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the coordinator's addresses, first preferred; none if the enrolment's count."""
        given = self.coordinator
        return (given,) if isinstance(given, str) else given or ()


def read_client_settings(path: Path) -> ClientSettings:
    """Read ``client.toml``; a missing file means the defaults.

    Raises:
        ClientSettingsError: If the file is there and cannot be used.
    """
    try:
        return decoded(read_toml(path), ClientSettings)
    except FileNotFoundError:
        return ClientSettings()
    except OSError as error:
        raise ClientSettingsError(f"cannot read {path}: {error}") from None
    except (TomlError, msgspec.ValidationError) as error:
        raise ClientSettingsError(f"{path}: {error}") from None


def write_starting_settings(path: Path) -> None:
    """Write settings for the owner to change, owner-only; settings that are there already stay."""
    if not path.exists():
        write_atomically(path, STARTING_SETTINGS.encode())
