"""A device whose update does not fit hands its lease back, and the round goes on without it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.device import Device as AgentDevice
from edge_client.agent.session import Ended, Session
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.jobs.job import Job, Trained
from edge_client.owner.floor import Floor
from edge_client.owner.traffic import Traffic
from edge_client.wire.transport import Transport
from models.plan.plan import decode_plan
from models.settings.model import schema_of
from protos import federation_pb2 as wire
from tests.integration.conftest import Make
from tests.integration.device import Device, next_lease, wait_finished

FLOOR = Floor(
    modes=frozenset({"none"}),
    largest_clipping_norm="any",
    least_cohort=1,
    model_families=frozenset({"gru_lm"}),
)


class BrokenTrainer:
    """Seal an update that is too large to aggregate, or one as an earlier release sealed it."""

    def __init__(self, device: Device, *, earlier: bool) -> None:
        self._device = device
        self._earlier = earlier

    async def run(self, job: Job) -> Trained:
        lease = wire.Lease(
            plan=job.plan,
            nonce=job.lease_nonce,
            round_number=job.round_number,
            slot=job.slot,
            base_sha256=job.base_sha256,
            deadline_ms=job.deadline_ms,
        )
        count = schema_of(decode_plan(job.plan).model).element_count
        huge = np.full(count, 2e18, dtype=np.float32)
        sealed, message_id = self._device.seal_update(lease, huge)
        if self._earlier:
            # Its header had no digest of the plan, so all of it was 32 bytes shorter.
            sealed = sealed[32:]
        Path(job.sealed_update).write_bytes(sealed)
        return Trained(example_count=1, message_id=message_id)

    async def close(self) -> None:
        """Nothing is kept between jobs."""


async def never() -> None:
    """Wait for an owner who does not come."""
    await asyncio.Event().wait()


async def serve_session(device: Device, folder: Path, *, earlier: bool) -> Ended:
    """Serve leases as an agent does, until the run is over."""
    own = DeviceFolder(folder)
    own.create()
    own.empty_work()
    own.save(
        Enrolment(
            client_name=device.name,
            run=device.invite.run,
            device_address=device.invite.device_address,
            ca_certificate=device.invite.ca_certificate,
        )
    )
    own.save_coordinator(
        CoordinatorKeys(
            wrapping=device.coordinator_wrapping.der, signing=device.coordinator_signing.der
        )
    )
    agent = AgentDevice(
        folder=own,
        client_name=device.name,
        data=folder,
        compute="cpu",
        floor=FLOOR,
        trainer=BrokenTrainer(device, earlier=earlier),
        traffic=Traffic(folder / "traffic.json"),
    )
    async with Transport(
        device.invite.device_address,
        device.invite.ca_certificate,
        device.identity.tls_key_pem,
        device.identity.tls_certificate_pem,
    ) as transport:
        session = Session(agent, transport, once=False)
        return await asyncio.wait_for(session.run(never, never), 60)


@pytest.mark.parametrize(
    ("earlier", "counted"),
    [(False, "malformed_update"), pytest.param(True, "wrong_size", marks=pytest.mark.slow)],
)
def test_the_round_does_not_wait_for_a_device_whose_update_can_never_count(
    make_federation: Make, tmp_path: Path, *, earlier: bool, counted: str
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=1, deadline=600.0)
    federation.start()
    sound, broken = federation.enrol(2)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(
            lambda: asyncio.run(serve_session(broken, tmp_path / "broken", earlier=earlier))
        )
        orders = sound.check_in()
        sound.take_part(next_lease(orders))
        # Ten minutes before its deadline the round has closed with what it has.
        wait_finished(orders)

    assert ended.result().reason == "finished"
    (release,) = federation.releases()
    assert release.contribution_count == 1
    assert release.metrics[f"refused_{counted}"] == 1
