"""Certificates are renewed on the wire, and nothing that is under way is lost by it."""

import asyncio
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_client.folder.layout import DeviceFolder, Enrolment
from edge_client.wire.enrolling import enrol_device, renew_certificates
from edge_client.wire.refusal import RefusedError
from edge_client.wire.transport import Transport
from privacy.identities.invite import read_invite
from privacy.identities.party import Identity
from protos import federation_pb2 as wire
from tests.integration.conftest import Make
from tests.integration.federation import Federation


@dataclass
class Enrolled:
    """Hold a device that can call with any identity that it has had."""

    folder: DeviceFolder
    enrolment: Enrolment

    @property
    def identity(self) -> Identity:
        return Identity.load(self.folder.identity)

    def connect(self, identity: Identity) -> Transport:
        return Transport(
            self.enrolment.device_address,
            self.enrolment.ca_certificate,
            identity.tls_key_pem,
            identity.tls_certificate_pem,
        )

    def first_order(self, identity: Identity) -> wire.WorkOrder:
        """Check in, and return what comes first."""

        async def check_in() -> wire.WorkOrder:
            request = wire.CheckInRequest(
                model_families=["gru_lm"], device_time_ms=round(time.time() * 1000)
            )
            async with self.connect(identity) as transport:
                orders = transport.work_orders(request)
                try:
                    return await asyncio.wait_for(anext(orders), 60)
                finally:
                    await orders.aclose()

        return asyncio.run(check_in())

    def renew(self, identity: Identity) -> None:
        """Renew, and install what comes."""

        async def renewed() -> None:
            async with self.connect(identity) as transport:
                ca = self.enrolment.ca_certificate
                await renew_certificates(self.folder, ca, transport, now=time.time())

        asyncio.run(renewed())

    def renew_and_lose_the_answer(self) -> wire.Certificates:
        """Renew as far as the coordinator; return what the device never hears."""

        async def asked() -> wire.RenewCertificatesResponse:
            made = Identity.create_requests(self.folder.identity, "device")
            requests = wire.SigningRequests(
                tls=made.tls, wrapping=made.wrapping, signing=made.signing
            )
            async with self.connect(self.identity) as transport:
                return await transport.renew(requests)

        return asyncio.run(asked()).device


def enrol(federation: Federation, folder: Path) -> Enrolled:
    """Start the federation and enrol one device."""
    federation.start()
    (file,) = federation.invite()
    own = DeviceFolder(folder)
    return Enrolled(own, asyncio.run(enrol_device(own, read_invite(file), now=time.time())))


def test_a_renewed_device_keeps_its_name_and_its_lease_and_the_old_keys_pass(
    make_federation: Make, tmp_path: Path
) -> None:
    device = enrol(make_federation(cohort=1, quorum=1), tmp_path / "device")
    before = device.identity
    lease = device.first_order(before).lease
    device.renew(before)
    after = device.identity

    assert after.name == before.name == "device-0001"
    for use in ("tls", "wrapping", "signing"):
        assert getattr(after.certificates, use) != getattr(before.certificates, use)
    # Old and new certificate lead to the same device and the same lease.
    for identity in (before, after):
        again = device.first_order(identity).lease
        assert (again.nonce, again.slot) == (lease.nonce, lease.slot)
    # A second renewal ends the first generation.
    device.renew(after)
    with pytest.raises(RefusedError) as refused:
        device.first_order(before)
    assert refused.value.code == "certificate_unknown"


def test_a_renewal_whose_answers_are_lost_is_answered_alike_until_one_arrives(
    make_federation: Make, tmp_path: Path
) -> None:
    device = enrol(make_federation(cohort=1, quorum=1), tmp_path / "device")
    before = device.identity

    lost = [device.renew_and_lose_the_answer() for _ in range(3)]

    assert lost[1:] == lost[:1] * 2
    assert device.first_order(before).HasField("lease")
    device.renew(before)
    assert device.identity.certificates.tls == lost[0].tls
    assert device.first_order(device.identity).HasField("lease")


def test_a_device_that_loses_the_answers_and_its_new_keys_can_still_call(
    make_federation: Make, tmp_path: Path
) -> None:
    device = enrol(make_federation(cohort=1, quorum=1), tmp_path / "device")
    before = device.identity

    for _ in range(3):
        device.renew_and_lose_the_answer()
        # As when the folder comes back from a backup.
        shutil.rmtree(device.folder.identity / "pending")

    assert device.first_order(before).HasField("lease")
    device.renew(before)
    assert device.first_order(device.identity).HasField("lease")
