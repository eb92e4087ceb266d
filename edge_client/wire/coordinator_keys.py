"""Take up the coordinator's keys when they change: check them against the authority, keep them.

A lease names the keys of its round, so a device that was away needs no call of its own.
"""

import logging

from edge_client.folder.layout import CoordinatorKeys, DeviceFolder
from privacy.identities.certificates import KeyUse, check_certificate
from protos import federation_pb2 as wire

logger = logging.getLogger(__name__)


def check_keys(keys: CoordinatorKeys, *, ca: bytes, now: float) -> None:
    """Check that the CA (DER) certified both keys as the coordinator's, valid at ``now`` (Unix s).

    Raises:
        CertificateError: If it did not.
    """
    for use, der in ((KeyUse.WRAPPING, keys.wrapping), (KeyUse.SIGNING, keys.signing)):
        check_certificate(der, ca=ca, use=use, role="coordinator", now=now)


def take_up_keys(lease: wire.Lease, folder: DeviceFolder, *, now: float) -> None:
    """Keep the keys that a lease names, valid at ``now`` (Unix s); an old coordinator names none.

    Raises:
        CertificateError: If they are not the coordinator's; the current ones stay.
        DeviceFolderError: If the folder is not an enrolled device's.
    """
    if not lease.HasField("coordinator"):
        return
    named = CoordinatorKeys(wrapping=lease.coordinator.wrapping, signing=lease.coordinator.signing)
    if named == folder.coordinator():
        return
    check_keys(named, ca=folder.enrolment().ca_certificate, now=now)
    folder.save_coordinator(named)
    logger.info("round %d: the coordinator's keys have changed", lease.round_number)
