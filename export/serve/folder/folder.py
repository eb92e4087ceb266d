"""Keep what one server serves in one folder, owner-only.

::

    serve.toml       settings, written by ``sotto-serve init``
    authority.crt    whose coordinator signs every bundle; absent if unsigned ones are accepted
    versions/NAME/   one bundle each, as ``sotto-serve promote`` copied and checked it
    people/NAME/     personal files made for that version, CLIENT.zip, and _everybody.zip,
                     from which the parts of all others are made
    versions.json    which of them is served, and what was served before
    voice/           versions, people and versions.json of the voice, if one was promoted
    blocklist.txt    words that are never suggested, if there is such a file
    tokens.json      SHA-256 of every client's token

There are three locks: one for a promotion, which copies and measures for long, one for the moment
in which what is served is exchanged, and one for tokens.
"""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from export.releases.release import read_authority
from privacy.foundation.full_disk import naming_the_disk

_LOG = logging.getLogger(__name__)

_MOMENT_S = 1.0
_LOOK_EVERY_S = 0.05


class ServingError(ValueError):
    """Raised when a serving folder, or what is asked of it, is not right; the text says why."""


@dataclass(frozen=True)
class ServingFolder:
    """The files of one serving folder."""

    root: Path

    @property
    def settings(self) -> Path:
        """Return where the settings are."""
        return self.root / "serve.toml"

    @property
    def authority(self) -> Path:
        """Return where the authority's certificate is, if there is one."""
        return self.root / "authority.crt"

    @property
    def bundles(self) -> Path:
        """Return the folder of all versions."""
        return self.root / "versions"

    @property
    def all_people(self) -> Path:
        """Return the folder with a folder of personal files for each version."""
        return self.root / "people"

    def people(self, version: str) -> Path:
        """Return the folder of personal files of one version."""
        return self.all_people / version

    @property
    def voices(self) -> "ServingFolder":
        """Return the folder of the voices, with versions and people of their own alone."""
        return ServingFolder(self.root / "voice")

    def person(self, version: str, client: str) -> Path:
        """Return where a client's personal file of one version is."""
        return self.people(version) / f"{client}.zip"

    def everybody(self, version: str) -> Path:
        """Return the path of everybody's embeddings for a version; no client's name begins so."""
        return self.people(version) / "_everybody.zip"

    def files_of_people(self, version: str) -> list[Path]:
        """Return a version's personal files without everybody's embeddings, in order of name."""
        return sorted(set(self.people(version).glob("*")) - {self.everybody(version)})

    @property
    def versions(self) -> Path:
        """Return the file that says which version is served."""
        return self.root / "versions.json"

    @property
    def blocklist(self) -> Path:
        """Return the path of the words that are never suggested, if there are such."""
        return self.root / "blocklist.txt"

    @property
    def tokens(self) -> Path:
        """Return the file of the tokens' hashes."""
        return self.root / "tokens.json"

    def check(self) -> None:
        """Raise ServingError if ``sotto-serve init`` did not make this folder."""
        if not self.settings.is_file():
            raise ServingError(
                f"{self.root} must be a serving folder; "
                f"make one with `sotto-serve init {self.root}`"
            )

    def authority_certificate(self) -> bytes | None:
        """Return the authority's certificate, DER; None if unsigned bundles may be served.

        Raise ReleaseError if the file is there and holds no certificate.
        """
        return read_authority(self.authority) if self.authority.exists() else None

    def authority_of(self, version: str, *, accept_unsigned: bool) -> bytes | None:
        """Return the certificate, DER, that the signer of a version is checked against.

        None is right only under ``accept_unsigned``; otherwise ServingError names the version.
        Raise
        ReleaseError if the file is there and holds no certificate.
        """
        certificate = self.authority_certificate()
        if certificate is None and not accept_unsigned:
            raise ServingError(
                f"{self.authority} must be there to check who signed {version}; put the "
                "federation's authority.crt there, or set accept_unsigned"
            )
        return certificate

    def changing(self) -> contextlib.AbstractContextManager[None]:
        """Keep other commands from changing what is served meanwhile; waits for its turn.

        All three locks raise FullDiskError for a full disk, OSError for a folder that cannot be
        written.
        """
        return self._turn(".lock", "changes what is served from")

    def promoting(self) -> contextlib.AbstractContextManager[None]:
        """Keep other promotions away, however long this one measures."""
        return self._turn(".promoting.lock", "promotes into")

    def changing_tokens(self) -> contextlib.AbstractContextManager[None]:
        """Keep other commands from changing the tokens meanwhile; what is served may change."""
        return self._turn(".tokens.lock", "changes the tokens of")

    @contextlib.contextmanager
    def _turn(self, name: str, doing: str) -> Iterator[None]:
        with naming_the_disk(self.root):
            descriptor = os.open(self.root / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if not _is_locked_within(descriptor, _MOMENT_S):
                    _LOG.warning(
                        "waiting: another sotto-serve command %s %s; this one goes on when it ends",
                        doing,
                        self.root,
                    )
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)


def _is_locked_within(descriptor: int, seconds: float) -> bool:
    """Lock a file, unless others keep it for longer than that; return whether it is locked."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            time.sleep(_LOOK_EVERY_S)
        else:
            return True
