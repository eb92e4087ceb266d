"""Meet the coordinator's keys: check them, keep the newest, refuse older ones.

A thief of the coordinator's former keys has valid certificates. So a device keeps the newest that
it has met, of all three uses, and from then on refuses any that began earlier or were certified by
an issuing key before theirs. A lease names the keys of its round, the handshake shows the TLS one,
and an authority's statements lead to the one after it: a device that was away needs no call of its
own.
"""

import logging
from collections.abc import Container

import msgspec

from edge_client.folder.layout import CoordinatorKeys, DeviceFolder
from edge_client.wire.handshake import TlsFiles, shown_certificates
from edge_client.wire.refusal import UnreachableError
from privacy.foundation.host_port import host_of
from privacy.identities.certificates import (
    CertificateError,
    KeyUse,
    certificate_time,
    check_certificate,
    check_host,
    check_issuer,
    fingerprint,
    read_certificate,
)
from privacy.identities.party import Identity
from privacy.identities.succession import successor_of
from protos import federation_pb2 as wire

logger = logging.getLogger(__name__)

Generation = tuple[float, float]


def check_keys(keys: CoordinatorKeys, *, ca: bytes, now: float) -> None:
    """Check that the CA (DER) certified the keys as the coordinator's, valid at ``now`` (Unix s).

    Raises:
        CertificateError: If it did not.
    """
    for use, der in _by_use(keys):
        check_certificate(der, ca=ca, use=use, role="coordinator", now=now)


def keep_keys(keys: CoordinatorKeys, folder: DeviceFolder, *, ca: bytes, now: float) -> None:
    """Check the coordinator's keys against the CA and against those met before, and keep them.

    Raises:
        CertificateError: If the CA did not certify them, or the device has met newer ones; those
            stay.
        DeviceFolderError: If the folder's file of keys was changed.
    """
    check_keys(keys, ca=ca, now=now)
    newest = _newest(folder, ca)
    for _, der in _by_use(keys):
        _check_not_older(der, newest)
    folder.save_coordinator(keys)


def take_up_keys(lease: wire.Lease, folder: DeviceFolder, *, now: float) -> None:
    """Keep the keys that a lease names, valid at ``now`` (Unix s); an old coordinator names none.

    Raises:
        CertificateError: If they are not the coordinator's, or older than those met before; the
            current ones stay.
        DeviceFolderError: If the folder is not an enrolled device's.
    """
    if not lease.HasField("coordinator"):
        return
    named = named_keys(lease.coordinator)
    if named == folder.coordinator():
        return
    keep_keys(named, folder, ca=folder.enrolment().ca_certificate, now=now)
    logger.info("round %d: the coordinator's keys have changed", lease.round_number)


def named_keys(given: wire.Certificates) -> CoordinatorKeys:
    """Return the coordinator's keys as a message names them."""
    return CoordinatorKeys(tls=given.tls, wrapping=given.wrapping, signing=given.signing)


def pinned_tls(folder: DeviceFolder, *, now: float) -> bytes | None:
    """Return the TLS certificate to trust, DER, or None if the device must look for a newer one."""
    keys = folder.known_coordinator()
    if keys is None or not keys.tls:
        return None
    newest = _newest(folder, folder.enrolment().ca_certificate)
    shown = read_certificate(keys.tls)
    is_newest = newest is not None and shown.generation >= newest
    return keys.tls if is_newest and now < shown.not_after else None


async def meet_coordinator(
    folder: DeviceFolder,
    address: str,
    authorities: Container[str] | None,
    *,
    now: float,
    passphrase: bytes | None = None,
) -> None:
    """Look at what the listener at ``host:port`` shows, and follow it if it may be followed.

    A newer TLS certificate is kept. If the authority has named a successor, that one becomes the
    device's authority; ``authorities``, if given, are the fingerprints (hex) that the owner allows.

    Raises:
        UnreachableError: If nobody answers there, or whoever does shows nothing that this device
            may follow: the coordinator may be there again later.
        DeviceFolderError: If the folder is not an enrolled device's.
        KeyFileError: If it holds no identity.
    """
    own = TlsFiles(*Identity.tls_files(folder.identity), passphrase)
    shown = await shown_certificates(address, own)
    try:
        _follow(folder, shown, authorities, now)
        check_host(shown[0], host_of(address))
    except CertificateError as error:
        logger.warning("%s shows certificates that are refused: %s", address, error)
        raise UnreachableError(f"{address} shows certificates that are refused: {error}") from None


def check_shown(shown: list[bytes], *, ca: bytes, now: float) -> bytes:
    """Return the TLS certificate's chain, DER, of what a listener shows, if the CA certified it.

    Raises:
        CertificateError: If it did not.
    """
    # Its own and the issuing key's; what follows leads from former authorities to this one.
    chain = b"".join(shown[:2])
    check_certificate(chain, ca=ca, use=KeyUse.TLS, role="coordinator", now=now)
    return chain


def _follow(
    folder: DeviceFolder, shown: list[bytes], authorities: Container[str] | None, now: float
) -> None:
    enrolment = folder.enrolment()
    ca = enrolment.ca_certificate
    if len(shown) > 2 and fingerprint(shown[2]) != fingerprint(ca):
        ca = successor_of(ca, shown[2:], now=now)
        if authorities is not None and fingerprint(ca).hex() not in authorities:
            raise CertificateError(
                f"the federation has moved to the authority {fingerprint(ca).hex()}, which this "
                "device's owner has not allowed; ask its operator, and add it to authorities in "
                "floor.toml"
            )
    tls = check_shown(shown, ca=ca, now=now)
    _check_not_older(tls, _newest(folder, ca))
    folder.save_coordinator(msgspec.structs.replace(folder.coordinator(), tls=tls))
    if ca != enrolment.ca_certificate:
        folder.save(msgspec.structs.replace(enrolment, ca_certificate=ca))
        logger.warning(
            "the authority %s has named %s as its successor: this device follows it",
            fingerprint(enrolment.ca_certificate).hex(),
            fingerprint(ca).hex(),
        )


def _newest(folder: DeviceFolder, ca: bytes) -> Generation | None:
    """Return the newest generation of keys that the device has met under an authority."""
    known = folder.known_coordinator()
    met: list[Generation] = []
    for _, der in () if known is None else _by_use(known):
        try:
            check_issuer(der, ca=ca)
        except CertificateError:
            # One by an authority before this one.
            continue
        met.append(read_certificate(der).generation)
    return max(met, default=None)


def _check_not_older(der: bytes, newest: Generation | None) -> None:
    certified = read_certificate(der)
    if newest is not None and certified.generation < newest:
        raise CertificateError(
            f"the coordinator's {certified.use.value} certificate began at "
            f"{certificate_time(certified.not_before)} and this device has met a newer one, of "
            f"{certificate_time(newest[1])}: keys that were replaced are refused, as a thief may "
            "have them; if the coordinator went back to a backup, its operator runs `sotto-server "
            "rotate-keys` (`rotate-issuing-key`, if that was replaced since)"
        )


def _by_use(keys: CoordinatorKeys) -> list[tuple[KeyUse, bytes]]:
    """Return the certificates that are known, with their use."""
    always = [(KeyUse.WRAPPING, keys.wrapping), (KeyUse.SIGNING, keys.signing)]
    return [*always, (KeyUse.TLS, keys.tls)] if keys.tls else always
