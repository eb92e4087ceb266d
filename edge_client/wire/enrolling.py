"""Turn an invite into a device identity, and renew that identity before it runs out.

The device makes its own keys; only signing requests leave it. Certificates are checked against the
authority that the invite pins before anything is kept.
"""

from collections.abc import Container

import msgspec

from edge_client.folder.layout import DeviceFolder, DeviceFolderError, Enrolment
from edge_client.wire.addresses import Addresses
from edge_client.wire.coordinator_keys import (
    check_shown,
    keep_keys,
    meet_coordinator,
    named_keys,
)
from edge_client.wire.handshake import shown_certificates
from edge_client.wire.transport import Transport, enrol
from privacy.foundation.host_port import host_of
from privacy.identities.certificates import (
    CertificateError,
    Certificates,
    check_host,
    fingerprint,
    read_certificate,
)
from privacy.identities.invite import Invite
from privacy.identities.party import Identity
from privacy.identities.signing_requests import SigningRequests
from protos import federation_pb2 as wire


async def enrol_device(
    folder: DeviceFolder,
    invite: Invite,
    *,
    now: float,
    passphrase: bytes | None = None,
    authorities: Container[str] | None = None,
) -> Enrolment:
    """Enrol a device, or enrol it again; after an interruption, call it with the same invite.

    An enrolled device gets new keys and certificates and keeps everything else. Its old identity
    stays until the new one is whole. The invite must be for the folder's device and run, and the
    passphrase, which encrypts the key files, the same in every call. ``now`` is in Unix seconds.
    ``authorities``, if given, are the fingerprints (hex) of those that the device may follow.

    Raises:
        DeviceFolderError: If the folder is another federation's or device's, or an agent runs on
            it.
        KeyFileError: If keys that lie in the folder need another passphrase.
        RefusedError: If the coordinator refuses the token, the version or the requests.
        UnreachableError: If the coordinator cannot be reached.
        CertificateError: If the answer was not certified by the invite's authority.
    """
    folder.create()
    with folder.sole_agent():
        await _follow_authority(folder, invite, authorities, now, passphrase)
        before = _enrolment_before(folder, invite)
        identity = _identity_before(folder, invite, passphrase)
        if before is None and identity is not None and _is_valid(identity, now):
            # An interrupted enrolment got this far. Its token is used by now, so asking again with
            # new keys would be refused.
            return _save(folder, identity.name, invite)
        answer = await _ask(folder, invite, passphrase, now)
        name = answer.client_name
        _check_name(folder, before, identity, name)
        _check_certified(answer.device, name)
        if before is not None:
            # The coordinator may have moved. If what follows is cut short, the pending keys and
            # the same invite bring the same answer again.
            _save(folder, name, invite)
        ca = invite.ca_certificate
        _keep(folder, answer.device, answer.coordinator, ca=ca, now=now, passphrase=passphrase)
        # Of a new device last, because this file is what says that it is enrolled.
        return _save(folder, name, invite)


async def _follow_authority(
    folder: DeviceFolder,
    invite: Invite,
    authorities: Container[str] | None,
    now: float,
    passphrase: bytes | None,
) -> None:
    """Follow to the invite's authority, where the folder's one has named it as its successor."""
    if not folder.is_enrolled:
        return
    before = folder.enrolment()
    if before.run == invite.run and before.ca_certificate != invite.ca_certificate:
        await Addresses(invite.enrolment_addresses).find(
            lambda address: meet_coordinator(
                folder, address, authorities, now=now, passphrase=passphrase
            )
        )


def _enrolment_before(folder: DeviceFolder, invite: Invite) -> Enrolment | None:
    """Return whom the folder belongs to, if it is enrolled in the run of the invite."""
    if not folder.is_enrolled:
        return None
    before = folder.enrolment()
    if before.run != invite.run:
        raise DeviceFolderError(
            f"{folder.path} is enrolled already, in run {before.run}, and the invite is of run "
            f"{invite.run}; use another folder for another federation"
        )
    _check_authority(folder, before.ca_certificate, invite)
    return before


def _identity_before(
    folder: DeviceFolder, invite: Invite, passphrase: bytes | None
) -> Identity | None:
    """Return the identity in the folder, expired or not, if it is of the invite's authority."""
    if not Identity.exists(folder.identity):
        return None
    identity = Identity.load(folder.identity, passphrase)
    if not folder.is_enrolled:
        # Else the enrolment says whose the device is now; its certificates may be of one before.
        _check_authority(folder, identity.authority, invite)
    return identity


def _check_authority(folder: DeviceFolder, ca_certificate: bytes, invite: Invite) -> None:
    if ca_certificate != invite.ca_certificate:
        raise DeviceFolderError(
            f"{folder.path} is enrolled already, with the authority "
            f"{fingerprint(ca_certificate).hex()}, and the invite is of the authority "
            f"{invite.ca_sha256}; use another folder for another federation"
        )


def _is_valid(identity: Identity, now: float) -> bool:
    try:
        identity.check_time(now)
    except CertificateError:
        return False
    return True


async def _ask(
    folder: DeviceFolder, invite: Invite, passphrase: bytes | None, now: float
) -> wire.EnrolResponse:
    """Exchange the invite's token for certificates of new keys, or of those left pending."""

    async def look(address: str) -> bytes:
        shown = await shown_certificates(address)
        tls = check_shown(shown, ca=invite.ca_certificate, now=now)
        check_host(tls, host_of(address))
        return tls

    addresses = Addresses(invite.enrolment_addresses)
    tls = await addresses.find(look)
    requests = Identity.create_requests(folder.identity, "device", passphrase=passphrase)
    token = bytes.fromhex(invite.token)
    return await enrol(addresses.current, tls, token, _on_the_wire(requests))


def _check_name(
    folder: DeviceFolder, before: Enrolment | None, identity: Identity | None, name: str
) -> None:
    """Check that a folder that was somebody's stays theirs: its personal model and its spending."""
    if before is not None:
        owner = before.client_name
    elif identity is not None:
        owner = identity.name
    else:
        return
    if name != owner:
        raise DeviceFolderError(
            f"{folder.path} is enrolled already, as {owner}, and the invite was for {name}: it is "
            "used now, and nothing has changed here; ask for an invite made by `sotto-server token "
            f"FEDERATION --client {owner}`, and for a new one to enrol {name} in another folder"
        )


def _check_certified(certificates: wire.Certificates, name: str) -> None:
    """Check that certificates are in the device's own name.

    A helper tells devices apart by it: under two names one would be summed twice.
    """
    certified = read_certificate(certificates.signing).name
    if certified != name:
        raise CertificateError(f"the certificates must be in the name of {name}, got {certified}")


def _save(folder: DeviceFolder, name: str, invite: Invite) -> Enrolment:
    enrolment = Enrolment(
        client_name=name,
        run=invite.run,
        device_address=invite.device_address,
        ca_certificate=invite.ca_certificate,
        helper_certificate=invite.helper or b"",
        other_device_addresses=invite.device_addresses[1:] or msgspec.UNSET,
    )
    folder.save(enrolment)
    return enrolment


async def renew_certificates(
    folder: DeviceFolder,
    ca_certificate: bytes,
    transport: Transport,
    *,
    now: float,
    passphrase: bytes | None = None,
) -> None:
    """Exchange all three certificates, and fetch the coordinator's current ones.

    The CA is DER, ``now`` in Unix seconds; the passphrase encrypts new key files as current ones.

    Raises:
        RefusedError: If the coordinator refuses.
        UnreachableError: If it cannot be reached; the old certificates stay in use.
        CertificateError: If the answer was not certified by the authority, or for another name.
    """
    requests = Identity.create_requests(folder.identity, "device", passphrase=passphrase)
    answer = await transport.renew(_on_the_wire(requests))
    _check_certified(answer.device, folder.enrolment().client_name)
    ca = ca_certificate
    _keep(folder, answer.device, answer.coordinator, ca=ca, now=now, passphrase=passphrase)


def _keep(
    folder: DeviceFolder,
    device: wire.Certificates,
    coordinator: wire.Certificates,
    *,
    ca: bytes,
    now: float,
    passphrase: bytes | None,
) -> None:
    """Check and keep both sides' certificates; the old ones work until the last step."""
    keep_keys(named_keys(coordinator), folder, ca=ca, now=now)
    certificates = Certificates(device.tls, device.wrapping, device.signing)
    Identity.install(
        folder.identity, certificates, ca=ca, role="device", now=now, passphrase=passphrase
    )


def _on_the_wire(requests: SigningRequests) -> wire.SigningRequests:
    return wire.SigningRequests(
        tls=requests.tls, wrapping=requests.wrapping, signing=requests.signing
    )
