"""Certificates are renewed on the wire, and nothing that is under way is lost by it."""

import asyncio
import time
from pathlib import Path

import pytest

from edge_client.device_folder import DeviceFolder
from edge_client.enrolling import enrol_device, renew_certificates
from edge_client.refusal import RefusedError
from edge_client.transport import Transport
from privacy.identity import Identity
from privacy.invite import read_invite
from protos import federation_pb2 as wire
from tests.integration.conftest import Make


def test_a_renewed_device_keeps_its_name_and_its_lease_and_the_old_keys_pass(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    federation.start()
    (file,) = federation.invite()
    invite = read_invite(file)
    folder = DeviceFolder(tmp_path / "device")
    enrolment = asyncio.run(enrol_device(folder, invite, now=time.time()))

    def connect(identity: Identity) -> Transport:
        return Transport(
            enrolment.device_address,
            invite.ca_certificate,
            identity.tls_key_pem,
            identity.tls_certificate_pem,
        )

    async def first_order(identity: Identity) -> wire.WorkOrder:
        request = wire.CheckInRequest(
            model_families=["gru_lm"], device_time_ms=round(time.time() * 1000)
        )
        async with connect(identity) as transport:
            orders = transport.work_orders(request)
            try:
                return await asyncio.wait_for(anext(orders), 20)
            finally:
                await orders.aclose()

    async def renew(identity: Identity) -> None:
        async with connect(identity) as transport:
            await renew_certificates(folder, invite.ca_certificate, transport, now=time.time())

    before = Identity.load(folder.identity)
    lease = asyncio.run(first_order(before)).lease
    asyncio.run(renew(before))
    after = Identity.load(folder.identity)

    assert after.name == before.name == "device-0001"
    for use in ("tls", "wrapping", "signing"):
        assert getattr(after.certificates, use) != getattr(before.certificates, use)
    # Old and new certificate lead to the same device and the same lease.
    for identity in (before, after):
        again = asyncio.run(first_order(identity)).lease
        assert (again.nonce, again.slot) == (lease.nonce, lease.slot)
    # A second renewal ends the first generation.
    asyncio.run(renew(after))
    with pytest.raises(RefusedError) as refused:
        asyncio.run(first_order(before))
    assert refused.value.code == "certificate_unknown"
