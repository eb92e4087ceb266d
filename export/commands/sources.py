"""Read what ``sotto-export`` is pointed at: releases, certificates, a coordinator's keys."""

from pathlib import Path

from export.releases.release import Release, find_release, read_authority, read_release
from privacy.identities.keys import read_passphrase
from privacy.identities.party import Identity


def release_in(source: Path, which: str, authority: Path | None) -> Release:
    """Read a release; a coordinator's own folder says who must have signed it."""
    if authority is None and authority_of(source).is_file():
        authority = authority_of(source)
    return read_release(find_release(source, which), authority=certificate_in(authority))


def authority_of(coordinator: Path) -> Path:
    """Return where a coordinator's folder has its authority's certificate, if it is one."""
    return coordinator / "authority" / "authority.crt"


def certificate_in(authority: Path | None) -> bytes | None:
    """Return a certificate, DER; None without a file."""
    return None if authority is None else read_authority(authority)


def coordinator_of(source: Path, passphrase_file: Path | None) -> Identity | None:
    """Return the coordinator whose folder is given; nobody signs for another folder."""
    return identity_in(source, passphrase_file) if (source / "identity").is_dir() else None


def identity_in(source: Path, passphrase_file: Path | None) -> Identity:
    """Return the coordinator's keys in its folder."""
    passphrase = None if passphrase_file is None else read_passphrase(passphrase_file)
    return Identity.load(source / "identity", passphrase)
