"""Renew the coordinator's own certificates at two thirds of their life, while it serves.

Keys change between rounds only, because a round's model, leases and updates all name the same ones.
A device learns of new keys with its next lease.
"""

import logging
import time
from collections.abc import Callable

from privacy.identities.certificates import CertificateError
from privacy.identities.keys import KeyFileError
from privacy.identities.party import Identity
from server.config.federation import FederationConfig
from server.devices.own_keys import rotate_keys
from server.records.folder import ServerFolder
from server.records.threads import Threads

_LOG = logging.getLogger(__name__)
# The clock may be set while the coordinator waits, so it is looked at again in between.
LONGEST_WAIT_S = 3600.0
_RETRY_S = 24 * 3600.0


class KeyRenewal:
    """The renewal of one coordinator's certificates."""

    def __init__(
        self, folder: ServerFolder, config: FederationConfig, identity: Identity, threads: Threads
    ) -> None:
        self.identity = identity
        self._folder = folder
        self._config = config
        self._threads = threads
        self._take_up: list[Callable[[Identity], None]] = []
        self._failed_at: float | None = None

    def tell(self, take_up: Callable[[Identity], None]) -> None:
        """Register a callback for every new identity; it runs first, on the event loop."""
        self._take_up.append(take_up)

    @property
    def is_due(self) -> bool:
        """Return whether to renew now."""
        failed = self._failed_at
        may_try = failed is None or time.monotonic() >= failed + _RETRY_S
        return may_try and self.identity.due_for_renewal(time.time())

    @property
    def wait_s(self) -> float:
        """Return the seconds for which nobody needs to ask ``is_due`` again."""
        left_s = self.identity.renewal_due_at - time.time()
        return min(left_s, LONGEST_WAIT_S) if left_s > 0 else LONGEST_WAIT_S

    async def renew(self) -> None:
        """Replace keys and certificates, on disk and in use; try again a day after a failure."""
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
