"""Readers of keys, certificates, requests, invites, sealed messages and ledgers."""

import functools
import sqlite3
import tempfile
from pathlib import Path

import msgspec

from privacy.accounting.events import EventError, UnprotectedRelease, canonical_bytes, read_event
from privacy.accounting.ledger_chain import LedgerError, next_entry, verify_chain
from privacy.accounting.ledger_file import export_ledger, read_ledger
from privacy.auditing.scores import AuditError
from privacy.auditing.scores_file import read_scores
from privacy.commands.federation_file import FederationTablesError, read_tables
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    certificate_der,
    certificate_pem,
    check_certificate,
    hostnames_of,
)
from privacy.identities.invite import InviteError, read_invite
from privacy.identities.keys import KeyFileError, make_tls_key, private_key_pem, read_private_key
from privacy.identities.party import Identity
from privacy.identities.signing_requests import make_signing_request, read_signing_request
from privacy.sealing.envelope import Direction, MessageContext, UnsealError, open_sealed, seal
from server.config.federation import preset_text
from tests.fuzz.target import Prepared, Target, of_bytes, of_file
from tests.privacy.conftest import NOW, RUN, enrol

_EVENT = UnprotectedRelease(mode="none")
_FIRST = next_entry(None, run=RUN.hex(), round_number=1, event=_EVENT, now_ms=1)
_ENTRIES = [_FIRST, next_entry(_FIRST, run=RUN.hex(), round_number=2, event=_EVENT, now_ms=2)]


class Parties:
    """An authority, a coordinator and a device."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.authority = CertificateAuthority.create(folder / "authority", RUN.hex(), now=NOW)
        self.coordinator = enrol(
            self.authority, folder / "coordinator", "coordinator", "coordinator"
        )
        self.device = enrol(self.authority, folder / "device", "device-0001", "device")
        self.folder = folder


@functools.cache
def parties() -> Parties:
    """Return the parties, made when they are first asked for."""
    return Parties()


def _certificate(_folder: Path) -> Prepared:
    ours = parties()

    def read(der: bytes) -> None:
        hostnames_of(der)
        check_certificate(
            der, ca=ours.authority.certificate, use=KeyUse.TLS, role="coordinator", now=NOW
        )

    return Prepared(read, (ours.coordinator.certificates.tls, ours.authority.certificate))


def _pem(_folder: Path) -> Prepared:
    return Prepared(certificate_der, (certificate_pem(parties().device.certificates.tls),))


def _request(_folder: Path) -> Prepared:
    seed = make_signing_request(make_tls_key(), "device-0001", KeyUse.TLS)
    # The version of PKCS#10 that nobody ever made: 3 for 0.
    return Prepared(
        lambda request: read_signing_request(request, KeyUse.TLS),
        (seed, seed.replace(b"\x02\x01\x00", b"\x02\x01\x03", 1)),
    )


def _key_file(folder: Path) -> Prepared:
    return of_file(read_private_key, private_key_pem(make_tls_key()))(folder)


def _invite(folder: Path) -> Prepared:
    ours = parties().authority
    seed = msgspec.json.encode(
        {
            "run": RUN.hex(),
            "enrolment_address": "localhost:1",
            "device_address": "localhost:2",
            "ca_certificate": ours.certificate,
            "ca_sha256": ours.fingerprint.hex(),
            "token": "ab" * 16,
            "expires_at": NOW,
        }
    )
    return of_file(read_invite, seed)(folder)


def _pointer(_folder: Path) -> Prepared:
    folder = parties().folder / "device"
    seed = (folder / "identity.json").read_bytes()

    def read(content: bytes) -> None:
        (folder / "identity.json").write_bytes(content)
        try:
            Identity.load(folder)
        finally:
            (folder / "identity.json").write_bytes(seed)

    return Prepared(read, (seed,))


def _sealed(_folder: Path) -> Prepared:
    ours, payload = parties(), bytes(100)
    context = MessageContext(
        direction=Direction.DOWNLINK,
        run=RUN,
        round_number=1,
        slot=1,
        lease_nonce=b"n" * 16,
        base_sha256=bytes(32),
        schema_sha256=bytes(32),
        deadline_ms=1,
    )
    recipient, sender = ours.device, ours.coordinator
    sealed = seal(payload, context, sender=sender, recipient=recipient.wrapping.certified)

    def read(message: bytes) -> None:
        opened = open_sealed(
            [message],
            context,
            payload_bytes=len(payload),
            recipient=recipient,
            sender=sender.signing.certified,
        )
        assert bytes(opened) == payload, "a forged message was opened"

    return Prepared(read, (b"".join(sealed.views()),))


def _ledger(path: Path) -> None:
    found = read_ledger(path)
    verify_chain(found.entries, run=found.run)


def _store(folder: Path) -> Prepared:
    whole, empty = folder / "whole", folder / "empty"
    for path, entries in ((whole, _ENTRIES), (empty, [_FIRST._replace(sha256=None)])):  # type: ignore[arg-type]
        store = sqlite3.connect(path)
        store.execute("CREATE TABLE runs (run)")
        store.execute("INSERT INTO runs VALUES (?)", (RUN.hex(),))
        store.execute(f"CREATE TABLE ledger ({', '.join(_FIRST._fields)})")
        store.executemany("INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
        store.commit()
        store.close()
    return of_file(_ledger, whole.read_bytes(), empty.read_bytes())(folder)


_CERTIFICATES = (CertificateError,)

IDENTITIES = (
    Target("certificate", _CERTIFICATES, _certificate, ("der",)),
    Target("certificate-pem", _CERTIFICATES, _pem, ("pem",)),
    Target("signing-request", _CERTIFICATES, _request, ("der",)),
    Target("key-file", (KeyFileError,), _key_file, ("pem", "text")),
    Target("invite", (InviteError,), _invite, ("json",)),
    Target("identity-pointer", (KeyFileError, CertificateError), _pointer, ("json",)),
    Target("sealed-message", (UnsealError,), _sealed, ("text",)),
    Target("ledger-store", (LedgerError,), _store, ("json",)),
    Target(
        "ledger-export",
        (LedgerError,),
        of_file(_ledger, export_ledger(RUN.hex(), _ENTRIES).encode()),
        ("json",),
    ),
    Target("event", (EventError,), of_bytes(read_event, canonical_bytes(_EVENT)), ("json",)),
    Target(
        "scores",
        (AuditError,),
        of_file(read_scores, b"canary,score,included\na,0.5,1\nb,0.25,0\n"),
        ("text",),
    ),
    Target(
        "privacy-tables",
        (FederationTablesError,),
        of_file(read_tables, preset_text("keyboard").encode()),
        ("toml",),
    ),
)
