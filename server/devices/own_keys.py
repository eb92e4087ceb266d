"""The coordinator's own keys: certified at the founding, and replaced while it runs."""

import time
from collections.abc import Sequence

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import hostnames_of
from privacy.identities.issuing_key import load_issuer
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.records.folder import ServerFolder

_NAME = "coordinator"
# Stolen keys that nobody missed are good until then. Devices learn of new ones by their leases and
# by the handshake, so no device needs to have come in the meantime.
_COORDINATOR_DAYS = 30.0


def certify_coordinator(
    folder: ServerFolder,
    issuer: CertificateAuthority,
    config: FederationConfig,
    hostnames: Sequence[str],
    *,
    after: float | None = None,
) -> Identity:
    """Make the coordinator's keys, have them certified, and install them in the folder.

    ``after`` is the ``not_before`` of the certificates that these replace.
    """
    names = [*config.listen.advertised_hosts, *hostnames, "localhost", "127.0.0.1", "::1"]
    requests = Identity.create_requests(folder.identity, _NAME)
    now = time.time()
    certificates = issuer.issue_all(
        requests,
        name=_NAME,
        role="coordinator",
        days=issuer.lasting(_COORDINATOR_DAYS, now),
        hostnames=list(dict.fromkeys(names)),
        now=now,
        after=after,
    )
    return Identity.install(
        folder.identity, certificates, ca=issuer.certificate, role="coordinator", now=now
    )


def rotate_keys(
    folder: ServerFolder, config: FederationConfig, hostnames: Sequence[str]
) -> Identity:
    """Replace the coordinator's keys; the wrapping key before them still opens what is under way.

    A device that has met the new ones refuses the former. Without ``hostnames`` the new certificate
    has those of the one before. A running coordinator calls this itself and takes up the new keys.

    Raises:
        CertificateError: If what certifies them has ended.
        KeyFileError: If a key cannot be read.
        OSError: If the folder cannot be written.
        ValueError: If a host name cannot stand in a certificate.
    """
    before = Identity.load(folder.identity).tls.certified
    issuer = load_issuer(folder.authority)
    names = hostnames or hostnames_of(before.der)
    return certify_coordinator(folder, issuer, config, names, after=before.not_before)


def are_of(identity: Identity, issuer: CertificateAuthority) -> bool:
    """Return whether the issuer certified these keys, and no issuing key or authority before it."""
    certified_it = identity.tls.certified.der.endswith(issuer.issuing)
    return identity.authority == issuer.certificate and certified_it
