"""Identify callers, let new devices in, and keep the keys that seal to them.

A connection's certificate identifies its caller. The store's answer about it is trusted for a
second, which saves a query a call: another process's withdrawal takes effect within that second,
one of this process at once. Enrolment or renewal of the same keys gets the same answer again,
because the first may have been lost.
"""

import hashlib
import ssl
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc

from privacy.identities.authority import CERTIFICATE_DAYS, CertificateAuthority
from privacy.identities.certificates import (
    CertificateError,
    Certificates,
    CertifiedKey,
    KeyUse,
    read_certificate,
)
from privacy.identities.keys import PublicKey, public_key_sha256
from privacy.identities.party import Identity
from privacy.identities.signing_requests import SigningRequests, read_signing_request
from protos import federation_pb2 as pb
from protos.refusals import RefusalCode
from server.devices.clients import (
    CallerError,
    UnknownClientError,
    check_caller,
    population_size,
    renew_certificates,
    revoke_client,
)
from server.devices.device_certificates import (
    StoredCertificate,
    certificates_of,
    keep_only_generation,
)
from server.devices.refused_calls import RefusedError
from server.devices.tokens import TokenError, check_token, look_at_token, redeem_token
from server.records.store import Store
from server.records.threads import Threads

TRUSTED_S = 1.0

# The TLS certificate, PEM, of the call that is being answered: every call is a task of its own.
_calls_with: ContextVar[bytes | None] = ContextVar("_calls_with", default=None)


@dataclass(frozen=True, slots=True)
class _Known:
    client: str
    until: float


class Membership:
    """The door between callers and the store of devices."""

    def __init__(
        self,
        store: Store,
        issuer: CertificateAuthority,
        identity: Identity,
        threads: Threads,
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._identity = identity
        self._threads = threads
        self._callers: dict[bytes, _Known] = {}
        self._keys: dict[tuple[str, KeyUse], list[CertifiedKey]] = {}
        self._one_renewal = threading.Lock()

    # Any: the message types differ for every method, and the certificate is the same for all.
    async def identify(self, context: "grpc.aio.ServicerContext[Any, Any]") -> str:
        """Return the client name of a caller.

        Raises:
            RefusedError: If its certificate is unknown, expired, or its device was revoked.
        """
        pem = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
        if pem is None:
            raise RefusedError(
                RefusalCode.CERTIFICATE_UNKNOWN, "this listener serves devices with a certificate"
            )
        _calls_with.set(pem)
        known = self._callers.get(pem)
        if known is not None and time.monotonic() < known.until:
            return known.client
        self._callers.pop(pem, None)
        client = await self._threads.run(lambda: self._look_up(pem))
        self._callers[pem] = _Known(client, time.monotonic() + TRUSTED_S)
        return client

    async def enrol(self, token: bytes, requests: pb.SigningRequests) -> pb.EnrolResponse:
        """Use up a token and certify a new device's keys.

        Raises:
            RefusedError: If the token or a request is no good.
        """
        client, given = await self._threads.run(lambda: self._enrol(token, requests))
        self._forget(client)
        return pb.EnrolResponse(
            client_name=client, device=given, coordinator=self.coordinator_certificates()
        )

    async def renew(
        self, client: str, requests: pb.SigningRequests
    ) -> pb.RenewCertificatesResponse:
        """Certify a device's new keys; the certificates in use stay valid until they expire.

        Raises:
            RefusedError: If a request is no good, or the device was revoked meanwhile.
        """
        pem = _calls_with.get()
        in_use = None if pem is None else _tls_sha256(pem)
        given = await self._threads.run(lambda: self._renew(client, requests, in_use))
        self._forget(client)
        return pb.RenewCertificatesResponse(
            device=given, coordinator=self.coordinator_certificates()
        )

    async def wrapping_key(self, client: str) -> CertifiedKey:
        """Return the key to seal to a device with.

        Raises:
            RefusedError: If the device was revoked.
        """
        return (await self._keys_of(client, KeyUse.WRAPPING))[0]

    async def signing_keys(self, client: str) -> list[CertifiedKey]:
        """Return the keys that a device may have signed with, newest first.

        Raises:
            RefusedError: If the device was revoked.
        """
        return await self._keys_of(client, KeyUse.SIGNING)

    async def population_size(self) -> int:
        """Return how many devices may be drawn: enrolled and not revoked."""
        return await self._threads.run(lambda: population_size(self._store))

    async def revoke(self, client: str) -> None:
        """Withdraw a device's certificates and the invites that it has not used.

        Raises:
            RefusedError: If no such device is enrolled or invited.
        """
        try:
            await self._threads.run(lambda: revoke_client(self._store, client, now=time.time()))
        except UnknownClientError as error:
            raise RefusedError(RefusalCode.UNKNOWN_CLIENT, str(error)) from None
        self._forget(client)

    def take_identity(self, identity: Identity) -> None:
        """Name renewed keys to devices from now on."""
        self._identity = identity

    def coordinator_certificates(self) -> pb.Certificates:
        """Return the certificates that devices seal to and verify with."""
        return _to_message(self._identity.certificates)

    def _look_up(self, pem: bytes) -> str:
        try:
            return check_caller(self._store, _tls_sha256(pem), now=time.time())
        except CallerError as error:
            raise RefusedError(error.code, str(error)) from None

    def _enrol(self, token: bytes, requests: pb.SigningRequests) -> tuple[str, pb.Certificates]:
        now = time.time()
        try:
            # First: a stranger must not make this process read keys and verify signatures.
            look_at_token(self._store, token, now=now)
            key_ids = _key_ids(requests)
            client = check_token(self._store, token, key_ids, now=now)
            given = self._certify(client, requests)
            kept = redeem_token(self._store, token, key_ids, _to_store(given), now=now)
        except TokenError as error:
            raise RefusedError(error.code, str(error)) from None
        except CertificateError as error:
            raise RefusedError(RefusalCode.SIGNING_REQUEST, str(error)) from None
        return client, _from_store(kept)

    def _renew(
        self, client: str, requests: pb.SigningRequests, in_use: bytes | None
    ) -> pb.Certificates:
        try:
            # One at a time: a repeat that overtakes the call before it would get another answer.
            with self._one_renewal:
                kept = self._given_before(client, _key_ids(requests), in_use)
                return self._give_anew(client, requests, in_use) if kept is None else kept
        except CertificateError as error:
            raise RefusedError(RefusalCode.SIGNING_REQUEST, str(error)) from None
        except UnknownClientError as error:
            raise RefusedError(RefusalCode.CERTIFICATE_REVOKED, str(error)) from None

    def _given_before(
        self, client: str, key_ids: bytes, in_use: bytes | None
    ) -> pb.Certificates | None:
        """Return the newest certificates if they are for these keys and not the ones in use."""
        stored = [certificates_of(self._store, client, use.value)[:1] for use in KeyUse]
        newest = [row for rows in stored for row in rows]
        if in_use in {row.sha256 for row in newest}:
            return None
        keys = [read_certificate(row.der).public_key for row in newest]
        return _from_store(newest) if _ids_of(keys) == key_ids else None

    def _give_anew(
        self, client: str, requests: pb.SigningRequests, in_use: bytes | None
    ) -> pb.Certificates:
        given = self._certify(client, requests)
        if in_use is not None:
            # Else those that no answer brought to the device could push out the ones it has.
            keep_only_generation(self._store, client, in_use)
        renew_certificates(self._store, client, _to_store(given), now=time.time())
        return _to_message(given)

    def _certify(self, client: str, requests: pb.SigningRequests) -> Certificates:
        asked = SigningRequests(requests.tls, requests.wrapping, requests.signing)
        now = time.time()
        days = self._issuer.lasting(CERTIFICATE_DAYS, now)
        return self._issuer.issue_all(asked, name=client, role="device", days=days, now=now)

    async def _keys_of(self, client: str, use: KeyUse) -> list[CertifiedKey]:
        keys = self._keys.get((client, use))
        if keys is None:
            stored = await self._threads.run(
                lambda: certificates_of(self._store, client, use.value)
            )
            keys = self._keys[client, use] = [read_certificate(row.der) for row in stored]
        if not keys:
            raise RefusedError(RefusalCode.CERTIFICATE_REVOKED, f"{client} was revoked")
        return keys

    def _forget(self, client: str) -> None:
        self._callers = {
            pem: known for pem, known in self._callers.items() if known.client != client
        }
        for use in KeyUse:
            self._keys.pop((client, use), None)


def _key_ids(requests: pb.SigningRequests) -> bytes:
    """Return a digest of the three public keys, which a request signed anew leaves alike."""
    return _ids_of(read_signing_request(getattr(requests, use.value), use) for use in KeyUse)


def _ids_of(keys: Iterable[PublicKey]) -> bytes:
    return hashlib.sha256(b"".join(public_key_sha256(key) for key in keys)).digest()


def _tls_sha256(pem: bytes) -> bytes:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).digest()


def _to_store(given: Certificates) -> list[StoredCertificate]:
    certified = [read_certificate(der) for der in given]
    return [
        StoredCertificate(key.sha256, key.use.value, key.der, key.not_after) for key in certified
    ]


def _from_store(kept: list[StoredCertificate]) -> pb.Certificates:
    return pb.Certificates(**{row.key_use: row.der for row in kept})


def _to_message(given: Certificates) -> pb.Certificates:
    return pb.Certificates(tls=given.tls, wrapping=given.wrapping, signing=given.signing)
