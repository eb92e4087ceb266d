"""One party's three keys and certificates in a folder, renewed all at once.

The folder (mode 0700) holds::

    identity.json        names the current generation and the one before; replaced atomically
    pending/             keys made, certificates awaited
    0002/  0001/         tls.key wrapping.key signing.key tls.crt wrapping.crt signing.crt ca.crt

A renewal fills ``pending``, renames it to a generation and only then replaces ``identity.json``:
a crash at any moment leaves the old identity or the new one. The wrapping key before the current
one still opens messages that were under way; keys older than that are deleted.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from privacy.foundation.atomic_files import sync_folder, write_atomically
from privacy.foundation.bounded_files import LARGEST_CERTIFICATE_BYTES, read_bounded
from privacy.foundation.strict_json import LARGEST_RECORD_BYTES, read_json
from privacy.identities.certificates import (
    CertificateError,
    Certificates,
    CertifiedKey,
    KeyUse,
    Role,
    certificate_der,
    certificate_pem,
    check_certificate,
    check_issuer,
    read_certificate,
)
from privacy.identities.keys import (
    KeyFileError,
    PrivateKey,
    check_owner_only,
    make_private_folder,
    make_rsa_key,
    make_tls_key,
    private_key_pem,
    public_key_sha256,
    read_private_key,
    write_private_key,
)
from privacy.identities.signatures import Purpose, sign
from privacy.identities.signing_requests import SigningRequests, make_signing_request

_POINTER = "identity.json"
_PENDING = "pending"
_AUTHORITY = "ca.crt"


class _Generations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format_version: int = 1
    current: int
    previous: int | None = None


@dataclass(frozen=True)
class KeyPair:
    """A private key with its certificate."""

    private_key: PrivateKey
    certified: CertifiedKey


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The three keys of one party, ready for use.

    Attributes:
        authority: Certificate of the federation's authority, DER.
        wrapping: Key that others seal to.
        signing: Key that signs envelopes and releases.
        previous_wrapping: Wrapping key before the last renewal; absent before the first.
    """

    authority: bytes
    tls: KeyPair
    wrapping: KeyPair
    signing: KeyPair
    previous_wrapping: KeyPair | None = None

    @staticmethod
    def create_requests(
        folder: Path, name: str, *, bits: int = 3072, passphrase: bytes | None = None
    ) -> SigningRequests:
        """Make three keys, or take those an unfinished enrolment left, and ask for certificates.

        A current identity in the folder goes on working until `install`. ``name``, 1 to 64
        characters, is a label: the authority decides the name. Keys have 3072 or 4096 bits; the
        passphrase is the same for every call on one folder.

        Raises:
            KeyFileError: If the folder is readable by others, or pending keys cannot be read.
            ValueError: If ``bits`` or ``name`` is out of range.
        """
        make_private_folder(folder)
        pending = folder / _PENDING
        if not pending.exists() and not _take_back(folder):
            _make_pending(folder, bits, passphrase)
        keys = {use: read_private_key(pending / f"{use}.key", passphrase) for use in KeyUse}
        return SigningRequests(
            **{use.value: make_signing_request(keys[use], name, use) for use in KeyUse}
        )

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a folder holds a current identity; KeyFileError if it is damaged."""
        return _read_pointer(folder) is not None

    @staticmethod
    def tls_files(folder: Path) -> tuple[Path, Path]:
        """Return where the current TLS certificate and key lie; KeyFileError if nowhere."""
        current = folder / _named(_current(folder).current)
        return current / f"{KeyUse.TLS}.crt", current / f"{KeyUse.TLS}.key"

    @classmethod
    def install(
        cls,
        folder: Path,
        certificates: Certificates,
        *,
        ca: bytes,
        role: Role,
        now: float,
        passphrase: bytes | None = None,
    ) -> Self:
        """Make the keys pending in a folder the current identity, atomically.

        ``ca`` is the authority's certificate, DER, whose fingerprint the caller has checked.

        Raises:
            CertificateError: If a certificate is not the authority's, not for its use, role or
                pending key, not valid at ``now``, or the names differ. Nothing has changed then.
            KeyFileError: If there are no pending keys or they cannot be read.
        """
        pending = folder / _PENDING
        names = set()
        for use in KeyUse:
            der: bytes = getattr(certificates, use)
            certified = check_certificate(der, ca=ca, use=use, role=role, now=now)
            _pair(read_private_key(pending / f"{use}.key", passphrase), certified)
            names.add(certified.name)
        if len(names) != 1:
            raise CertificateError(f"three certificates must have one name, got {sorted(names)}")
        for use in KeyUse:
            pem = certificate_pem(getattr(certificates, use))
            write_atomically(pending / f"{use}.crt", pem)
        write_atomically(pending / _AUTHORITY, certificate_pem(ca))
        _switch(folder)
        return cls.load(folder, passphrase)

    @classmethod
    def load(cls, folder: Path, passphrase: bytes | None = None) -> Self:
        """Read the current identity. Dates are not looked at: call `check_time` where they matter.

        Raises:
            KeyFileError: If there is none, a file is missing, damaged or readable by others, or
                the passphrase is wrong.
            CertificateError: If a certificate and its key or authority do not belong together.
        """
        generations = _current(folder)
        check_owner_only(folder)
        current = folder / _named(generations.current)
        authority = _read_certificate_file(current / _AUTHORITY)
        pairs = {use: _read_pair(current, use, authority, passphrase) for use in KeyUse}
        previous = None
        if generations.previous is not None:
            before = folder / _named(generations.previous)
            # The federation may have had another authority then.
            former = _read_certificate_file(before / _AUTHORITY)
            previous = _read_pair(before, KeyUse.WRAPPING, former, passphrase)
        return cls(
            authority=authority,
            tls=pairs[KeyUse.TLS],
            wrapping=pairs[KeyUse.WRAPPING],
            signing=pairs[KeyUse.SIGNING],
            previous_wrapping=previous,
        )

    @property
    def name(self) -> str:
        """The name that the authority gave this party."""
        return self.signing.certified.name

    @property
    def role(self) -> Role:
        """Return what the authority certified this party to be."""
        return self.signing.certified.role

    @property
    def tls_key_pem(self) -> bytes:
        """Private TLS key, PKCS#8 PEM, not encrypted: for a TLS library, never for the disk."""
        return private_key_pem(self.tls.private_key)

    @property
    def tls_certificate_pem(self) -> bytes:
        """TLS certificate and what leads from it to the authority, PEM."""
        return certificate_pem(self.tls.certified.der)

    @property
    def authority_pem(self) -> bytes:
        """Authority's certificate, PEM: the only root to trust."""
        return certificate_pem(self.authority)

    @property
    def certificates(self) -> Certificates:
        """The three current certificates, DER."""
        pairs = (self.tls, self.wrapping, self.signing)
        return Certificates(*(pair.certified.der for pair in pairs))

    @property
    def wrapping_pairs(self) -> tuple[KeyPair, ...]:
        """Wrapping keys that still open messages: current first, then the one before."""
        if self.previous_wrapping is None:
            return (self.wrapping,)
        return (self.wrapping, self.previous_wrapping)

    @property
    def renewal_due_at(self) -> float:
        """Unix seconds at which the first of the three certificates is due for renewal."""
        pairs = (self.tls, self.wrapping, self.signing)
        return min(pair.certified.renewal_due_at for pair in pairs)

    @property
    def ends_at(self) -> float:
        """The end of the certificate that ends first, in seconds since 1970 UTC."""
        return min(pair.certified.not_after for pair in (self.tls, self.wrapping, self.signing))

    def due_for_renewal(self, now: float) -> bool:
        """Return whether any of the three certificates is past two thirds of its life."""
        return now >= self.renewal_due_at

    def check_time(self, now: float) -> None:
        """Raise CertificateError unless all three certificates are valid at ``now``."""
        for pair in (self.tls, self.wrapping, self.signing):
            pair.certified.check_time(now)

    def sign(self, message: bytes, *, purpose: Purpose) -> bytes:
        """Return this party's signature; `privacy.identities.signatures.verify` checks it."""
        return sign(rsa_key(self.signing), message, purpose=purpose)


def rsa_key(pair: KeyPair) -> rsa.RSAPrivateKey:
    """Return the private half of a wrapping or signing pair; ValueError for a TLS one."""
    if not isinstance(pair.private_key, rsa.RSAPrivateKey):
        raise ValueError(f"a {pair.certified.use.value} key is not RSA")
    return pair.private_key


def _make_pending(folder: Path, bits: int, passphrase: bytes | None) -> None:
    """Write three new keys; ``pending`` appears when all of them are on the disk."""
    keys: dict[KeyUse, PrivateKey] = {
        KeyUse.TLS: make_tls_key(),
        KeyUse.WRAPPING: make_rsa_key(bits),
        KeyUse.SIGNING: make_rsa_key(bits),
    }
    unfinished = folder / f".{_PENDING}.tmp"
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private_folder(unfinished)
    for use, key in keys.items():
        write_private_key(unfinished / f"{use}.key", key, passphrase)
    unfinished.rename(folder / _PENDING)
    sync_folder(folder)


def _switch(folder: Path) -> None:
    """Turn ``pending`` into the current generation; delete all but the one before."""
    pointer = _next_generation(folder)
    (folder / _PENDING).rename(folder / _named(pointer.current))
    sync_folder(folder)
    write_atomically(folder / _POINTER, msgspec.json.encode(pointer))
    kept = {_named(number) for number in (pointer.current, pointer.previous) if number is not None}
    for old in folder.glob("[0-9]" * 4):
        if old.name not in kept:
            shutil.rmtree(old, ignore_errors=True)


def _take_back(folder: Path) -> bool:
    """Undo a switch that was cut short before its pointer; return whether there was one."""
    unfinished = folder / _named(_next_generation(folder).current)
    if not unfinished.exists():
        return False
    unfinished.rename(folder / _PENDING)
    sync_folder(folder)
    return True


def _next_generation(folder: Path) -> _Generations:
    generations = _read_pointer(folder)
    if generations is None:
        return _Generations(current=1)
    return _Generations(current=generations.current + 1, previous=generations.current)


def _read_pointer(folder: Path) -> _Generations | None:
    path = folder / _POINTER
    try:
        return read_json(path, _Generations, at_most=LARGEST_RECORD_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise KeyFileError(f"{path} cannot be read: {error}") from None


def _current(folder: Path) -> _Generations:
    generations = _read_pointer(folder)
    if generations is None:
        raise KeyFileError(
            f"{folder} holds no identity: a device gets one by `sotto-client enrol`, a "
            "coordinator by `sotto-server init`, a helper by `sotto-helper admit`"
        )
    return generations


def _named(generation: int) -> str:
    return f"{generation:04d}"


def _read_pair(folder: Path, use: KeyUse, authority: bytes, passphrase: bytes | None) -> KeyPair:
    der = _read_certificate_file(folder / f"{use}.crt")
    check_issuer(der, ca=authority)
    return _pair(read_private_key(folder / f"{use}.key", passphrase), read_certificate(der))


def _pair(key: PrivateKey, certified: CertifiedKey) -> KeyPair:
    if public_key_sha256(key.public_key()) != public_key_sha256(certified.public_key):
        raise CertificateError(
            f"{certified.use.value} certificate of {certified.name} is for another key than the "
            "one kept here"
        )
    return KeyPair(key, certified)


def _read_certificate_file(path: Path) -> bytes:
    try:
        return certificate_der(read_bounded(path, LARGEST_CERTIFICATE_BYTES))
    except OSError as error:
        raise KeyFileError(f"certificate {path} cannot be read: {error.strerror}") from None
