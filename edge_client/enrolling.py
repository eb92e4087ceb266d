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
from privacy.keys import KeyFileError
from privacy.signing_requests import SigningRequests
from protos import federation_pb2 as wire


async def enrol_device(folder: DeviceFolder, invite: Invite, *, now: float) -> Enrolment:
    """Enrol a new device; after an interruption, call it again with the same invite.

    Args:
        folder: An empty or unfinished device folder.
        invite: The operator's invite.
        now: Seconds since 1970 UTC.

    Raises:
        DeviceFolderError: If the folder is enrolled already.
        RefusedError: If the coordinator refuses the token, the version or the requests.
        UnreachableError: If the coordinator cannot be reached.
        CertificateError: If the answer was not certified by the invite's authority.
    """
    folder.create()
    name = _installed_name(folder)
    if name is None:
        requests = Identity.create_requests(folder.identity, "device")
        answer = await enrol(
            invite.enrolment_address,
            invite.ca_certificate,
            bytes.fromhex(invite.token),
            _on_the_wire(requests),
        )
        _keep(folder, answer.device, answer.coordinator, ca=invite.ca_certificate, now=now)
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


def _installed_name(folder: DeviceFolder) -> str | None:
    """Return the name that an interrupted enrolment was given, if it got that far.

    The token is used by then, so asking again with new keys would be refused.
    """
    try:
        return Identity.load(folder.identity).name
    except KeyFileError:
        return None


async def renew_certificates(
    folder: DeviceFolder, ca_certificate: bytes, transport: Transport, *, now: float
) -> None:
    """Exchange all three certificates, and fetch the coordinator's current ones.

    Raises:
        RefusedError: If the coordinator refuses.
        UnreachableError: If it cannot be reached; the old certificates stay in use.
        CertificateError: If the answer was not certified by the authority.
    """
    requests = Identity.create_requests(folder.identity, "device")
    answer = await transport.renew(_on_the_wire(requests))
    _keep(folder, answer.device, answer.coordinator, ca=ca_certificate, now=now)


def _keep(
    folder: DeviceFolder,
    device: wire.Certificates,
    coordinator: wire.Certificates,
    *,
    ca: bytes,
    now: float,
) -> None:
    """Check and keep both sides' certificates; the old ones work until the last step."""
    keys = CoordinatorKeys(wrapping=coordinator.wrapping, signing=coordinator.signing)
    check_keys(keys, ca=ca, now=now)
    folder.save_coordinator(keys)
    certificates = Certificates(device.tls, device.wrapping, device.signing)
    Identity.install(folder.identity, certificates, ca=ca, role="device", now=now)


def _on_the_wire(requests: SigningRequests) -> wire.SigningRequests:
    return wire.SigningRequests(
        tls=requests.tls, wrapping=requests.wrapping, signing=requests.signing
    )
