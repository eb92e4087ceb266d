"""Renew the coordinator's own certificates at two thirds of their life, while it serves.

Keys change between rounds only, because a round's model, leases and updates all name the same ones.
A device learns of new keys with its next lease.
"""

import logging
import time
from collections.abc import Callable

from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.devices.own_keys import are_of, rotate_keys
from server.records.folder import ServerFolder
from server.records.threads import Threads

_LOG = logging.getLogger(__name__)
# The clock may be set while the coordinator waits, so it is looked at again in between.
LONGEST_WAIT_S = 3600.0
_RETRY_S = 24 * 3600.0
# Devices' certificates last 90 days; with less left, they are renewed ever sooner.
_WARNED_DAYS = 120.0


class KeyRenewal:
    """The renewal of one coordinator's certificates."""

    def __init__(
        self,
        folder: ServerFolder,
        config: FederationConfig,
        identity: Identity,
        issuer: CertificateAuthority,
        threads: Threads,
    ) -> None:
        self.identity = identity
        self._issuer = issuer
        self._folder = folder
        self._config = config
        self._threads = threads
        self._take_up: list[Callable[[Identity], None]] = []
        self._failed_at: float | None = None

    def tell(self, take_up: Callable[[Identity], None]) -> None:
        """Register a callback for every new identity; it runs first, on the event loop."""
        self._take_up.append(take_up)

    @property
    def issuer_ends_at(self) -> float:
        """The end of what certifies coordinator and devices, in seconds since 1970 UTC."""
        return self._issuer.ends_at

    @property
    def is_due(self) -> bool:
        """Return whether to renew now."""
        failed = self._failed_at
        may_try = failed is None or time.monotonic() >= failed + _RETRY_S
        # A command that replaced the issuing key or the authority may have been cut short.
        outdated = not are_of(self.identity, self._issuer)
        return may_try and (outdated or self.identity.due_for_renewal(time.time()))

    @property
    def wait_s(self) -> float:
        """Return the seconds for which nobody needs to ask ``is_due`` again."""
        left_s = self.identity.renewal_due_at - time.time()
        return min(left_s, LONGEST_WAIT_S) if left_s > 0 else LONGEST_WAIT_S

    async def renew(self) -> None:
        """Replace keys and certificates, on disk and in use; try again a day after a failure."""
        self.warn_of_the_end()
        try:
            identity = await self._threads.run(
                lambda: rotate_keys(self._folder, self._config, hostnames=[])
            )
        except (CertificateError, KeyFileError, OSError) as error:
            self._failed_at = time.monotonic()
            _LOG.error(
                "the coordinator's certificates cannot be renewed: %s; the next try is in a day",
                error,
            )
            return
        self._failed_at = None
        self.identity = identity
        for take_up in self._take_up:
            take_up(identity)
        _LOG.info("the coordinator's certificates were renewed; devices learn of it by their lease")

    def warn_of_the_end(self) -> None:
        """Log that the operator is needed before the issuer ends and all certificates with it."""
        days = (self._issuer.ends_at - time.time()) / 86_400
        if days < _WARNED_DAYS:
            remedy = "rotate-issuing-key" if self._issuer.issuing else "replace-authority"
            _LOG.warning(
                "what certifies devices and coordinator ends in %.0f days: run `sotto-server %s` "
                "before",
                days,
                remedy,
            )
