"""Do what each ``sotto-serve`` command does, and report it as names and values."""

from pathlib import Path

import msgspec

from export.releases.release import read_authority
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import STARTING_SETTINGS
from export.serve.folder.tokens import clients_with_tokens, make_tokens, revoke_tokens
from export.serve.folder.versions import read_versions
from privacy.foundation.atomic_files import write_atomically
from privacy.identities.certificates import certificate_pem

Report = dict[str, object]


def init(folder: ServingFolder, *, authority: Path | None) -> Report:
    """Make a serving folder, new or empty; without ``authority`` unsigned bundles pass.

    Raises:
        ServingError: If something is there already.
        ReleaseError: If the authority's file holds no certificate.
    """
    if folder.root.exists() and any(folder.root.iterdir()):
        raise ServingError(f"{folder.root} must be new or empty")
    certificate = None
    if authority is not None:
        # The certificate alone: a coordinator keeps its issuing key in one file with it.
        certificate = certificate_pem(read_authority(authority))
    folder.root.mkdir(mode=0o700, exist_ok=True)
    folder.root.chmod(0o700)
    if certificate is not None:
        write_atomically(folder.authority, certificate)
    unsigned = "true" if certificate is None else "false"
    text = STARTING_SETTINGS.format(accept_unsigned=unsigned)
    write_atomically(folder.settings, text.encode())
    signed = "nobody need have signed" if certificate is None else "must be signed"
    return {"folder": str(folder.root), "bundles": signed}


def token(folder: ServingFolder, clients: list[str]) -> Report:
    """Make tokens, each shown this once; ServingError if the folder or a name is not right."""
    folder.check()
    return {"tokens": make_tokens(folder, clients)}


def revoke(folder: ServingFolder, clients: list[str]) -> Report:
    """End tokens, within a second for a server that runs; ServingError if a client has none."""
    folder.check()
    revoke_tokens(folder, clients)
    return {"revoked": clients}


def status(folder: ServingFolder) -> Report:
    """Report what is served, what was before and why, and how many clients have a token."""
    folder.check()
    versions, voices = read_versions(folder), read_versions(folder.voices)
    return {
        "present": versions.present,
        "before": versions.before,
        "voice": voices.present,
        "voice_before": voices.before,
        "clients": len(clients_with_tokens(folder)),
        "history": msgspec.to_builtins(versions.history),
    }
