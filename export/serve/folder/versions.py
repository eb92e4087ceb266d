"""Know which version is served, which was before, and why: ``versions.json``.

A version is one bundle in the folder, named by its round and its manifest's SHA-256. The file is
replaced in one step, so a server that reads it sees the old state or the new.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from export.bundles.manifest import BundleManifest
from export.serve.folder.folder import ServingError, ServingFolder
from privacy.foundation.atomic_files import write_atomically
from privacy.foundation.strict_json import read_json

_DIGEST_LENGTH = 12
_KEPT_CHANGES = 1000
_STILL_ANSWERED = timedelta(minutes=1)


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change of what is served.

    Attributes:
        action: The kind of change.
        version: The version served from then on.
        at: When, UTC, ISO 8601.
        reason: The gate's finding, or the reason of a rollback, in words.
    """

    action: Literal["promote", "rollback"]
    version: str
    at: str
    reason: str


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The versions that are served.

    Attributes:
        present: The version that a client gets unless it asks for another; None before the first.
        before: The version that was served before, still there for clients that ask for it.
        history: Every change, oldest first.
    """

    present: str | None = None
    before: str | None = None
    history: tuple[Change, ...] = ()

    def changed(
        self, action: Literal["promote", "rollback"], version: str, reason: str
    ) -> "Versions":
        """Return the state in which ``version`` is served."""
        change = Change(
            action=action, version=version, at=_written(datetime.now(UTC)), reason=reason
        )
        return Versions(
            present=version,
            before=self.present if version != self.present else self.before,
            history=(*self.history, change)[-_KEPT_CHANGES:],
        )

    def still_needed(self, now: datetime) -> set[str]:
        """Return the versions whose folders must stay: two, and those of the last 60 s.

        A server takes a moment to take a change over, and may be asked meanwhile for a person's
        file of what it still serves.
        """
        since = _written(now.astimezone(UTC) - _STILL_ANSWERED)
        present: str | None = None
        before: str | None = None
        needed = {self.present, self.before}
        for change in self.history:
            if change.at >= since:
                needed |= {present, before}
            if change.version != present:
                present, before = change.version, present
        return {version for version in needed if version is not None}


def _written(time: datetime) -> str:
    """Return a time in UTC as the history has it: earlier ones come first in order of letters."""
    return time.isoformat(timespec="seconds")


def version_name(manifest: BundleManifest) -> str:
    """Return the name of a bundle's version, such as ``000012-9f3a5c0e7b11``."""
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    return f"{manifest.round_number:06d}-{digest[:_DIGEST_LENGTH]}"


def read_versions(folder: ServingFolder) -> Versions:
    """Return what is to be served; ServingError if the file is corrupt or cannot be read."""
    try:
        return read_json(folder.versions, Versions)
    except FileNotFoundError:
        return Versions()
    except (OSError, msgspec.DecodeError) as error:
        raise ServingError(f"{folder.versions} cannot be read: {error}") from None


def write_versions(folder: ServingFolder, versions: Versions) -> None:
    """Replace what is to be served, in one step; the old state is untouched if the disk refuses."""
    encoded = msgspec.json.format(msgspec.json.encode(versions, order="deterministic"))
    write_atomically(folder.versions, encoded)
