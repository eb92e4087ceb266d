"""Turn an invite into a device identity, and renew that identity before it runs out.

The device makes its own keys; only signing requests leave it. Certificates are checked against the
authority that the invite pins before anything is kept.
"""

from edge_client.coordinator_keys import check_keys
from edge_client.device_folder import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.transport import Transport, enrol
from privacy.certificates import Certificates
from privacy.identity import Identity
from privacy.invite import Invite
from privacy.signing_requests import SigningRequests
from protos import federation_pb2 as wire


async def enrol_device(
    folder: DeviceFolder, invite: Invite, *, now: float, passphrase: bytes | None = None
) -> Enrolment:
    """Enrol a new device; after an interruption, call it again with the same invite.

    Args:
        folder: An empty or unfinished device folder.
        invite: The operator's invite.
        now: Seconds since 1970 UTC.
        passphrase: Encrypts the key files; the same for every call on one folder.

    Raises:
        DeviceFolderError: If the folder is enrolled already.
        KeyFileError: If keys that lie in the folder need another passphrase.
        RefusedError: If the coordinator refuses the token, the version or the requests.
        UnreachableError: If the coordinator cannot be reached.
        CertificateError: If the answer was not certified by the invite's authority.
    """
    folder.create()
    if Identity.exists(folder.identity):
        # An interrupted enrolment got this far. Its token is used by now, so asking again with
        # new keys would be refused.
        name = Identity.load(folder.identity, passphrase).name
    else:
        requests = Identity.create_requests(folder.identity, "device", passphrase=passphrase)
        answer = await enrol(
            invite.enrolment_address,
            invite.ca_certificate,
            bytes.fromhex(invite.token),
            _on_the_wire(requests),
        )
        ca = invite.ca_certificate
        _keep(folder, answer.device, answer.coordinator, ca=ca, now=now, passphrase=passphrase)
        name = answer.client_name
    enrolment = Enrolment(
        client_name=name,
        run=invite.run,
        device_address=invite.device_address,
        ca_certificate=invite.ca_certificate,
    )
    # Last, because this file is what says that the device is enrolled.
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

    Args:
        folder: The device's folder.
        ca_certificate: The federation's CA, DER.
        transport: To the coordinator.
        now: Seconds since 1970 UTC.
        passphrase: Encrypts the new key files, as it does the current ones.

    Raises:
        RefusedError: If the coordinator refuses.
        UnreachableError: If it cannot be reached; the old certificates stay in use.
        CertificateError: If the answer was not certified by the authority.
    """
    requests = Identity.create_requests(folder.identity, "device", passphrase=passphrase)
    answer = await transport.renew(_on_the_wire(requests))
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
    keys = CoordinatorKeys(wrapping=coordinator.wrapping, signing=coordinator.signing)
    check_keys(keys, ca=ca, now=now)
    folder.save_coordinator(keys)
    certificates = Certificates(device.tls, device.wrapping, device.signing)
    Identity.install(
        folder.identity, certificates, ca=ca, role="device", now=now, passphrase=passphrase
    )


def _on_the_wire(requests: SigningRequests) -> wire.SigningRequests:
    return wire.SigningRequests(
        tls=requests.tls, wrapping=requests.wrapping, signing=requests.signing
    )
