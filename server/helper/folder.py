"""The places of everything of one helper below its folder, and what a command finds there."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from privacy.foundation.atomic_files import READABLE, write_atomically
from privacy.foundation.bounded_files import LARGEST_CERTIFICATE_BYTES, read_bounded
from privacy.identities.certificates import (
    CertificateError,
    certificate_der,
    certificate_pem,
    hostnames_of,
)
from privacy.identities.chains import split_chain
from privacy.identities.helper_admission import (
    HELPER_NAME,
    HelperRequest,
    check_helper,
    make_helper_request,
    read_helper_certificates,
    run_of,
    write_helper_file,
)
from privacy.identities.keys import KeyFileError, make_private_folder
from privacy.identities.party import Identity
from server.helper.answers import Answers
from server.helper.settings import HelperSettings, read_helper_settings


class HelperFolderError(Exception):
    """Raised when a helper's folder cannot be used as asked; the text says why."""


@dataclass(frozen=True)
class HelperFolder:
    """The files of one helper, below an owner-only ``root``."""

    root: Path

    @property
    def settings(self) -> Path:
        """The owner's settings."""
        return self.root / "helper.toml"

    @property
    def authority(self) -> Path:
        """The only authority that is believed, PEM."""
        return self.root / "authority.pem"

    @property
    def identity(self) -> Path:
        """The helper's keys and certificates."""
        return self.root / "identity"

    @property
    def request(self) -> Path:
        """The request to hand to whoever holds the authority's key."""
        return self.root / "request.json"

    @property
    def answers(self) -> Path:
        """The store of what was answered."""
        return self.root / "answers.sqlite"

    @property
    def newest_issuer(self) -> Path:
        """The newest issuing key that has certified a caller."""
        return self.root / "newest_issuer.json"

    @property
    def lock(self) -> Path:
        """Locked by the process that answers."""
        return self.root / "lock"

    def read_authority(self) -> bytes:
        """Return the authority's certificate, DER."""
        return read_authority_file(self.authority)

    def read_settings(self) -> HelperSettings:
        """Return the owner's settings."""
        return read_helper_settings(self.settings)

    def open_answers(self, settings: HelperSettings) -> Answers:
        """Open the store of what was answered in the authority's run."""
        return Answers(
            self.answers,
            run_of(self.read_authority()),
            largest_rounds_a_day=settings.largest_rounds_a_day,
        )

    @contextlib.contextmanager
    def only_one(self) -> Iterator[None]:
        """Hold the folder's lock; HelperFolderError if another process does."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HelperFolderError(
                    f"a helper runs in {self.root}; end it with SIGTERM first"
                ) from None
            yield
        finally:
            os.close(descriptor)


def read_authority_file(path: Path) -> bytes:
    """Return an authority's certificate, DER.

    Raises:
        CertificateError: If the file holds no federation's authority.
        KeyFileError: If it cannot be read.
    """
    try:
        der = certificate_der(read_bounded(path, LARGEST_CERTIFICATE_BYTES))
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except CertificateError as error:
        raise CertificateError(f"{path}: {error}") from None
    if len(split_chain(der)) != 1:
        raise CertificateError(f"{path} must hold one certificate, the authority's own")
    run_of(der)
    return der


def found_helper(
    folder: HelperFolder, authority_file: Path, hostnames: Sequence[str], settings: HelperSettings
) -> HelperRequest:
    """Make a helper's folder and its keys; return its request, which lies there too.

    Raises:
        HelperFolderError: If the folder is not empty.
        CertificateError: If the authority's file is none.
        KeyFileError: If a file cannot be read or made.
        OSError: If the folder cannot be written.
        ValueError: If the settings are out of range.
    """
    root = folder.root
    # What an earlier call left that was cut short: the settings are written last.
    if folder.settings.exists() or (root.exists() and not root.is_dir()):
        raise HelperFolderError(f"{root} holds a helper already; a new one needs another folder")
    authority = read_authority_file(authority_file)
    make_private_folder(root)
    write_atomically(folder.authority, certificate_pem(authority), mode=READABLE)
    request = _write_request(folder, authority, hostnames)
    write_atomically(folder.settings, settings.encode())
    return request


def renew_helper(folder: HelperFolder, authority_file: Path | None = None) -> HelperRequest:
    """Make new keys and a request for them; those in use stay until `admit_helper`.

    ``authority_file`` holds the authority that the federation has moved to; nothing answers from
    this folder until that one has admitted it.

    Raises:
        CertificateError: If that authority is none, or of another run.
        KeyFileError: If the helper was not admitted yet, or a file cannot be made.
        OSError: If the folder cannot be written.
    """
    names = hostnames_of(Identity.load(folder.identity).tls.certified.der)
    authority = folder.read_authority()
    if authority_file is not None:
        successor = read_authority_file(authority_file)
        if run_of(successor) != run_of(authority):
            raise CertificateError(
                f"{authority_file} is the authority of run {run_of(successor).hex()}, and this "
                f"helper serves run {run_of(authority).hex()}; make another helper for that one"
            )
        authority = successor
        write_atomically(folder.authority, certificate_pem(authority), mode=READABLE)
    return _write_request(folder, authority, names)


def admit_helper(folder: HelperFolder, certificates: Path, *, now: float) -> Identity:
    """Take the certificates for the keys of the newest request; return what they make.

    Raises:
        CertificateError: If they are another authority's, or not for these keys. Nothing has
            changed then.
        KeyFileError: If there is no request.
        OSError: If a file cannot be read or the folder not written.
    """
    authority = folder.read_authority()
    given = read_helper_certificates(certificates)
    check_helper(given, authority=authority, now=now)
    return Identity.install(
        folder.identity, given.certificates, ca=authority, role="helper", now=now
    )


def _write_request(
    folder: HelperFolder, authority: bytes, hostnames: Sequence[str]
) -> HelperRequest:
    requests = Identity.create_requests(folder.identity, HELPER_NAME)
    request = make_helper_request(requests, authority=authority, hostnames=hostnames)
    write_helper_file(folder.request, request)
    return request
