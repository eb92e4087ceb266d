"""Readers of privacy: keys, certificates, sealed messages, ledgers, settings of a budget."""

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from privacy.accounting.events import (
    BufferedRelease,
    EventError,
    LocalRelease,
    MaskedAttempt,
    canonical_bytes,
    read_event,
)
from privacy.accounting.ledger_chain import LedgerEntry, LedgerError, next_entry, verify_chain
from privacy.accounting.ledger_file import export_ledger, read_ledger
from privacy.auditing.scores import AuditError
from privacy.auditing.scores_file import read_scores
from privacy.commands.federation_file import FederationTablesError, read_tables
from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    certificate_der,
    certificate_pem,
    check_issuer,
    hostnames_of,
    read_certificate,
)
from privacy.identities.invite import Invite, InviteError, OtherAddress, read_invite
from privacy.identities.keys import KeyFileError, read_passphrase, read_private_key
from privacy.identities.party import Identity
from privacy.identities.signing_requests import read_signing_request
from privacy.sealing.header import Direction, MessageContext
from privacy.sealing.seal import seal
from privacy.sealing.secret import SealedSecretError, open_secret, seal_secret
from privacy.sealing.unseal import UnsealError, open_sealed
from tests.fuzz.parties import RUN, parties
from tests.fuzz.target import Prepared, Target, in_new_folders, of_bytes, of_file

_PRESET = Path("server/presets/keyboard-central.toml")
_CONTEXT = MessageContext(
    direction=Direction.UPLINK,
    run=bytes.fromhex(RUN),
    round_number=3,
    slot=1,
    lease_nonce=b"nonce of lease 1",
    base_sha256=b"b" * 32,
    schema_sha256=b"s" * 32,
    plan_sha256=b"p" * 32,
    deadline_ms=1_800_000_060_000,
)
_KEY = bytes(range(32))
_PAYLOAD_BYTES = 300


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    yield from _identities()
    yield from _sealing()
    local = canonical_bytes(LocalRelease(noise_multiplier=2.0))
    masked = canonical_bytes(
        MaskedAttempt(noise_multiplier=2.0, adjacency="zero-out", honest_contributors=7)
    )
    buffered = canonical_bytes(
        BufferedRelease(
            noise_multiplier=4.0,
            adjacency="zero-out",
            min_separation=313,
            max_participation=6,
            buffer_decays=(0.99, 0.8),
            buffer_scales=(0.1, 0.3),
        )
    )
    events = of_bytes(read_event, local, masked, buffered)
    yield Target("privacy/event", (EventError,), events, ("json",))
    yield Target("privacy/ledger", (LedgerError,), _ledgers, ("json", "sqlite"))
    scores = b"canary,score,included\na,1.5,1\nb,-2e3,0\n"
    yield Target("privacy/scores", (AuditError,), of_file(read_scores, scores), ("text",))
    yield Target(
        "privacy/federation.toml",
        (FederationTablesError,),
        of_file(read_tables, _PRESET.read_bytes()),
        ("toml",),
    )


def _identities() -> Iterator[Target]:
    refused = (CertificateError,)
    yield Target("privacy/certificate", refused, _certificates, ("der",))
    yield Target("privacy/certificate.pem", refused, _pems, ("pem",))
    yield Target("privacy/signing-request", refused, _requests, ("der",))
    yield Target("privacy/key-file", (KeyFileError,), _key_files, ("pem", "text"))
    yield Target(
        "privacy/passphrase-file",
        (KeyFileError,),
        of_file(read_passphrase, b"correct horse\n"),
        ("text",),
    )
    yield Target("privacy/key-pointer", (KeyFileError, CertificateError), _pointers, ("json",))
    yield Target("privacy/invite", (InviteError,), _invites, ("json", "text"))


def _sealing() -> Iterator[Target]:
    yield Target("privacy/sealed-message", (UnsealError,), _sealed)
    sealed = seal_secret(b"a secret", _KEY, b"use")
    yield Target(
        "privacy/sealed-secret",
        (SealedSecretError,),
        of_bytes(lambda content: open_secret(content, _KEY, b"use"), sealed),
    )


def _certificates(_folder: Path) -> Prepared:
    return Prepared(_every_certificate, _ders())


def _ders() -> list[bytes]:
    known = parties()
    return [*known.coordinator.certificates[:3], known.device.certificates.signing]


def _every_certificate(der: bytes) -> None:
    check_issuer(der, ca=parties().authority.certificate)
    read_certificate(der)
    hostnames_of(der)


def _pems(_folder: Path) -> Prepared:
    return Prepared(certificate_der, [certificate_pem(der) for der in _ders()])


def _requests(folder: Path) -> Prepared:
    requests = Identity.create_requests(folder / "requests", "device-0002")
    return Prepared(
        lambda content: read_signing_request(content, KeyUse.SIGNING), [requests.signing]
    )


def _key_files(folder: Path) -> Prepared:
    keys = sorted((parties().folder / "device").rglob("*.key"))
    return of_file(read_private_key, *(path.read_bytes() for path in keys))(folder)


def _pointers(folder: Path) -> Prepared:
    identity = folder / "identity"
    shutil.copytree(parties().folder / "device", identity)
    pointer = next(path for path in identity.iterdir() if path.is_file())

    def read(content: bytes) -> object:
        pointer.write_bytes(content)
        return Identity.load(identity)

    return Prepared(read, [pointer.read_bytes()])


def _invites(folder: Path) -> Prepared:
    certificate = parties().authority.certificate
    invite = Invite(
        run=RUN,
        enrolment_address="127.0.0.1:7000",
        device_address="127.0.0.1:7001",
        ca_certificate=certificate,
        ca_sha256=hashlib.sha256(certificate).hexdigest(),
        token="0f" * 16,
        expires_at=1_800_000_000.0,
    )
    other = OtherAddress(enrolment_address="[::1]:7000", device_address="b.test:7001")
    several = msgspec.structs.replace(invite, other_addresses=(other,))
    return of_file(read_invite, invite.encode(), several.encode())(folder)


def _sealed(_folder: Path) -> Prepared:
    known = parties()
    message = seal(
        memoryview(bytes(_PAYLOAD_BYTES)),
        _CONTEXT,
        sender=known.device,
        recipient=known.coordinator.wrapping.certified,
    )

    def read(content: bytes) -> object:
        return open_sealed(
            (content,),
            _CONTEXT,
            payload_bytes=_PAYLOAD_BYTES,
            recipient=known.coordinator,
            sender=known.device.signing.certified,
        )

    return Prepared(read, [b"".join(message.views())])


def _ledgers(folder: Path) -> Prepared:
    entries: list[LedgerEntry] = []
    for number in (1, 2, 3):
        entries.append(
            next_entry(
                entries[-1] if entries else None,
                run=RUN,
                round_number=number,
                event=LocalRelease(noise_multiplier=2.0),
                now_ms=number,
            )
        )
    store = folder / "store.sqlite"
    with sqlite3.connect(store) as writing:
        writing.execute("PRAGMA page_size = 512")
        writing.execute("CREATE TABLE runs (run TEXT)")
        writing.execute("INSERT INTO runs VALUES (?)", (RUN,))
        writing.execute(f"CREATE TABLE ledger ({', '.join(LedgerEntry._fields)})")
        writing.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
    writing.close()
    content = store.read_bytes()
    exported = export_ledger(RUN, entries).encode()
    return Prepared(in_new_folders(_ledger, folder), [exported, content])


def _ledger(folder: Path, content: bytes) -> object:
    path = folder / "ledger"
    path.write_bytes(content)
    ledger = read_ledger(path)
    return verify_chain(ledger.entries, run=ledger.run)
