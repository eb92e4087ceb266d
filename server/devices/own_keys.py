"""The coordinator's own keys: certified at the founding, and replaced while it runs."""

import time
from collections.abc import Sequence

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import hostnames_of
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.records.folder import ServerFolder

_NAME = "coordinator"
# Devices learn of new coordinator keys when they renew their own; a year leaves them time.
_COORDINATOR_DAYS = 365.0


def certify_coordinator(
    folder: ServerFolder,
    authority: CertificateAuthority,
    config: FederationConfig,
    hostnames: Sequence[str],
) -> Identity:
    """Make the coordinator's keys, have them certified, and install them in the folder."""
    names = [config.listen.advertised_host, *hostnames, "localhost", "127.0.0.1", "::1"]
    requests = Identity.create_requests(folder.identity, _NAME)
    now = time.time()
    certificates = authority.issue_all(
        requests,
        name=_NAME,
        role="coordinator",
        days=_COORDINATOR_DAYS,
        hostnames=list(dict.fromkeys(names)),
        now=now,
    )
    return Identity.install(
        folder.identity, certificates, ca=authority.certificate, role="coordinator", now=now
    )


def rotate_keys(
    folder: ServerFolder, config: FederationConfig, hostnames: Sequence[str]
) -> Identity:
    """Replace the coordinator's keys; the wrapping key before them still opens what is under way.

    Without ``hostnames`` the new certificate has those of the one before. A running coordinator
    calls this itself and takes up the new keys.

    Raises:
        CertificateError: If the authority ends before the new certificates would.
        KeyFileError: If a key cannot be read.
        OSError: If the folder cannot be written.
        ValueError: If a host name cannot stand in a certificate.
    """
    before = Identity.load(folder.identity).certificates.tls
    authority = CertificateAuthority.load(folder.authority)
    return certify_coordinator(folder, authority, config, hostnames or hostnames_of(before))
