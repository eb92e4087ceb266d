"""Settings of the coordinator's store."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from privacy.accounting.ledger_file import STORE_NAME

_SQLITE = "sqlite:///"


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of the coordinator's records.

    Attributes:
        url: ``sqlite:///file`` (relative to the federation's file), or a PostgreSQL URL such as
            ``postgresql+psycopg://user@host/database``, its password in PostgreSQL's password file.
        keep_releases: Newest releases whose files are kept, beside the best one; at least 1, and 10
            for an aggregation that trims by history.
    """

    url: str = f"{_SQLITE}{STORE_NAME}"
    keep_releases: int = 10

    def __post_init__(self) -> None:
        if self.keep_releases < 1:
            raise ValueError(f"keep_releases must be >= 1, got {self.keep_releases}")
        is_file = self.url.startswith(_SQLITE) and self.url != _SQLITE
        if not is_file and not self.url.startswith("postgresql"):
            raise ValueError('url must start with "sqlite:///" or "postgresql"')
        # The text must not be repeated here: a password would end up in the terminal's history.
        if not is_file and urlsplit(self.url).password is not None:
            raise ValueError("url must not hold a password; put it into ~/.pgpass")

    @property
    def sqlite_path(self) -> Path | None:
        """Return the file of an SQLite store, or None for PostgreSQL."""
        is_file = self.url.startswith(_SQLITE)
        return Path(self.url.removeprefix(_SQLITE)) if is_file else None

    def rooted(self, folder: Path) -> "StoreSettings":
        """Return the settings with a relative file placed in the folder."""
        path = self.sqlite_path
        if path is None:
            return self
        return msgspec.structs.replace(self, url=f"{_SQLITE}{folder / path}")
