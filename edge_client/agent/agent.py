"""The device agent: wait until the device allows it, check in, serve leases, come back.

It runs unattended for months, so it loads no torch and writes its state atomically. Every failure
means one of three: try again later, start the lease over, or stop and say what a person must do.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

from edge_client.agent.data_at_hand import check_data_at_hand
from edge_client.agent.device import Device
from edge_client.agent.session import FAILED, Ended, Session
from edge_client.datasets.text_set import DatasetError
from edge_client.owner.policy import PolicySettings, Verdict, Wait, decide
from edge_client.owner.sensors import Sensors
from edge_client.wire.addresses import Addresses
from edge_client.wire.backoff import LAST_CEILING_S, delays
from edge_client.wire.coordinator_keys import meet_coordinator, pinned_tls
from edge_client.wire.enrolling import renew_certificates
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from privacy.identities.party import Identity
from protos.refusals import RefusalCode

logger = logging.getLogger(__name__)

# How often the sensors are read while a lease is held; a device must be given back soon.
SENSOR_INTERVAL_S = 15.0
# How often a device without data looks again: a keyboard writes some within the hour.
DATA_INTERVAL_S = 600.0
# How often the clock is read on a stream: a machine that slept would oversleep one long wait.
RENEWAL_INTERVAL_S = 3600.0


class Agent:
    """The agent that serves a federation from one device folder until cancelled.

    Attributes:
        addresses: Where the coordinator may be; the one that served last comes first.
    """

    def __init__(
        self,
        device: Device,
        *,
        addresses: Sequence[str],
        policy: PolicySettings,
        sensors: Sensors,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare an agent for a coordinator at ``host:port``, or one of several; first preferred.

        The ``clock`` gives seconds since 1970 UTC.
        """
        self._device = device
        self.addresses = Addresses(addresses)
        self._policy = policy
        self._sensors = sensors
        self._clock = clock
        self._renew = False
        self._had_orders = False
        # Whether the last connection held: else the coordinator may have got new keys.
        self._lost = False

    async def run(self, *, once: bool) -> Ended:
        """Serve leases; with ``once``, return after one lease or at the end of the run.

        No place in a round is taken while there is no data.

        Raises:
            CertificateError: If the device's certificates have expired, or its clock is wrong.
            DatasetError: With ``once``, if there is no data.
            KeyFileError: If its keys cannot be read.
            RefusedError: If the coordinator refuses for a reason that waiting cannot cure.
        """
        self._device.folder.empty_work()
        waits = delays(random.SystemRandom())
        try:
            while True:
                await self._until_allowed()
                began, self._had_orders = self._clock(), False
                try:
                    check_data_at_hand(self._device.data)
                    ended = await self._session(once=once)
                except DatasetError as error:
                    if once:
                        raise
                    logger.warning("no data, so no round: %s", error)
                    await _pause(DATA_INTERVAL_S, str(error))
                except (UnreachableError, OSError) as error:
                    self._lost = True
                    if not self._had_orders:
                        self.addresses.pass_over()
                    # A full disk is no reason to stop: what is sealed is kept for the next try.
                    if self._clock() - began > LAST_CEILING_S or self._lost_work(error):
                        # The stream held for longer than any wait, or its network broke in the
                        # middle of work: this is a first failure.
                        waits = delays(random.SystemRandom())
                    await _pause(next(waits), str(error))
                except RefusedError as refusal:
                    if refusal.is_fatal:
                        raise
                    # The coordinator may have rotated its keys since this device last renewed.
                    self._renew = refusal.code == RefusalCode.UNSEAL_FAILED
                    await _pause(next(waits), str(refusal))
                else:
                    if once and ended.reason in {"served", FAILED, "finished"}:
                        return ended
                    waits = delays(random.SystemRandom())
                    await _pause(_spread(ended.retry_after_s), ended.reason)
        finally:
            await self._device.trainer.close()

    async def _session(self, *, once: bool) -> Ended:
        identity = Identity.load(self._device.folder.identity, self._device.passphrase)
        # Told here: TLS would only say that the connection failed, again and again.
        identity.check_time(self._clock())
        async with self._transport(identity, await self._coordinator_tls()) as transport:
            ca = self._device.folder.enrolment().ca_certificate
            has_moved = identity.authority != ca
            if self._renew or has_moved or identity.due_for_renewal(self._clock()):
                await self._renew_certificates(transport, ca)
                return Ended(0.0, "certificates renewed")
            session = Session(self._device, transport, once=once)
            try:
                return await session.run(
                    self._until_forbidden, lambda: self._until_renewal_due(identity)
                )
            finally:
                self._had_orders = session.brought_orders

    def _lost_work(self, error: UnreachableError | OSError) -> bool:
        """Return whether only the network failed, on a stream down which orders had come.

        On a line that breaks every few megabytes, waits that grew with each break would leave no
        time for a round. A coordinator that fails by itself, or a full disk, is no such line.
        """
        return self._had_orders and isinstance(error, UnreachableError) and error.is_network

    async def _coordinator_tls(self) -> bytes:
        """Return the certificate that the coordinator must have the key of, DER."""
        folder = self._device.folder
        # Of several addresses, another may serve by now.
        is_new = self._lost or self.addresses.are_several
        pinned = None if is_new else pinned_tls(folder, now=self._clock())
        if pinned is None:
            await self.addresses.find(
                lambda address: meet_coordinator(
                    folder,
                    address,
                    self._device.floor.authorities,
                    now=self._clock(),
                    passphrase=self._device.passphrase,
                )
            )
            self._lost = False
            pinned = folder.coordinator().tls
        return pinned

    async def _renew_certificates(self, transport: Transport, ca: bytes) -> None:
        await renew_certificates(
            self._device.folder,
            ca,
            transport,
            now=self._clock(),
            passphrase=self._device.passphrase,
        )
        self._renew = False
        logger.info("certificates renewed")

    def _transport(self, identity: Identity, coordinator_tls: bytes) -> Transport:
        return Transport(
            self.addresses.current,
            coordinator_tls,
            identity.tls_key_pem,
            identity.tls_certificate_pem,
        )

    async def _until_allowed(self) -> None:
        while isinstance(verdict := self._decide(), Wait):
            logger.info("waiting up to %.0f s: %s", verdict.seconds, verdict.reason)
            await asyncio.sleep(verdict.seconds)
        if verdict.unknown:
            logger.warning("no sensor knows whether: %s; allowed", ", ".join(verdict.unknown))

    async def _until_forbidden(self) -> None:
        while not isinstance(verdict := self._decide(), Wait):
            await asyncio.sleep(SENSOR_INTERVAL_S)
        logger.info("giving the device back: %s", verdict.reason)

    async def _until_renewal_due(self, identity: Identity) -> None:
        while not identity.due_for_renewal(self._clock()):
            await asyncio.sleep(RENEWAL_INTERVAL_S)
        logger.info("leaving the stream: certificates are due for renewal")

    def _decide(self) -> Verdict:
        return decide(self._policy, self._sensors, self._clock())


async def _pause(seconds: float, reason: str) -> None:
    logger.info("checking in again in %.1f s: %s", seconds, reason)
    await asyncio.sleep(seconds)


def _spread(seconds: float) -> float:
    """Lengthen a wait by up to a tenth, so that devices told the same do not return together."""
    return seconds * (1 + 0.1 * random.SystemRandom().random())
