"""Admit a crowd of devices to a federation at once, straight through its store.

Enrolling thousands over the wire would measure RSA key generation and the door's rate limit. Each
device has a name, a TLS key and three certificates of its own; a few RSA keys serve all of them in
turn, as a key of 3072 bits takes a tenth of a second to make.
"""

import time
from pathlib import Path

import msgspec

from privacy.identities.authority import read_authority_certificate
from privacy.identities.certificates import KeyUse, read_certificate
from privacy.identities.issuing_key import load_issuer
from privacy.identities.keys import make_rsa_key, make_tls_key, private_key_pem
from privacy.identities.signing_requests import SigningRequests, make_signing_request
from server.config.federation import FederationConfig
from server.devices.clients import enrol_client
from server.devices.device_certificates import StoredCertificate
from server.records.folder import ServerFolder
from server.records.store import open_store

_RSA_KEYS = 8


class Member(msgspec.Struct, frozen=True):
    """One device: its name, its TLS key, PKCS#8 PEM, and its certificates, DER."""

    name: str
    tls_key: bytes
    tls: bytes
    wrapping: bytes
    signing: bytes


class Crowd(msgspec.Struct, frozen=True):
    """The devices of one federation, and what each of them knows.

    ``wrapping_keys`` and ``signing_keys``, PKCS#8 PEM, are the devices' in turn.
    """

    address: str
    authority: bytes
    wrapping_keys: list[bytes]
    signing_keys: list[bytes]
    members: list[Member]


def admit_crowd(root: Path, config: FederationConfig, count: int) -> Crowd:
    """Enrol so many devices in one transaction; the coordinator does not run meanwhile."""
    folder = ServerFolder(root)
    issuer = load_issuer(folder.authority)
    # A request proves that its sender has the key: one a key is enough for all its certificates.
    keys = {use: [make_rsa_key() for _ in range(_RSA_KEYS)] for use in _RSA_USES}
    asked = {
        use: [make_signing_request(key, "device", use) for key in keys[use]] for use in _RSA_USES
    }
    now, members = time.time(), []
    for number in range(count):
        tls_key, turn = make_tls_key(), number % _RSA_KEYS
        name = f"device-{number + 1:05d}"
        requests = SigningRequests(
            tls=make_signing_request(tls_key, "device", KeyUse.TLS),
            wrapping=asked[KeyUse.WRAPPING][turn],
            signing=asked[KeyUse.SIGNING][turn],
        )
        given = issuer.issue_all(requests, name=name, role="device", now=now)
        members.append(Member(name, private_key_pem(tls_key), *given))
    _enrol(config, members, now)
    return Crowd(
        address=config.listen.devices,
        authority=read_authority_certificate(folder.authority),
        wrapping_keys=[private_key_pem(key) for key in keys[KeyUse.WRAPPING]],
        signing_keys=[private_key_pem(key) for key in keys[KeyUse.SIGNING]],
        members=members,
    )


_RSA_USES = (KeyUse.WRAPPING, KeyUse.SIGNING)


def _enrol(config: FederationConfig, members: list[Member], now: float) -> None:
    store = open_store(config.store)
    try:
        with store.write() as connection:
            for member in members:
                read = [
                    read_certificate(der) for der in (member.tls, member.wrapping, member.signing)
                ]
                stored = [
                    StoredCertificate(key.sha256, key.use.value, key.der, key.not_after)
                    for key in read
                ]
                enrol_client(connection, member.name, stored, now)
    finally:
        store.close()
