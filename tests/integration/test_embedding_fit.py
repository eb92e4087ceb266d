"""A device that took part in no round gets a model of its own in one check-in."""

from dataclasses import replace

import grpc
import numpy as np
import pytest
import torch

from edge_client.agent.exit_status import NO_ROUND
from edge_client.child.own_text import training_examples
from edge_client.descent.compute import prepare_compute
from edge_client.personalisation.state import read_state
from edge_client.training.local_round import LocalTrainer
from edge_client.training.new_client import Fitted, NewClientFit
from models.personal.hypernetwork import Hypernetwork
from models.plan.plan import hypernetwork_of, upload_schema
from models.settings.hypernetwork import EmbeddingFitSettings
from models.vector.codec import FlatVector, encode
from models.vector.schema import Role
from protos import federation_pb2 as pb
from server.config.plans import make_plan
from server.releases.files import read_release
from tests.integration.conftest import Make, MakeDevices
from tests.integration.device import Device, code_of, next_lease, plan_of, wait_finished
from tests.integration.federation import Federation
from tests.integration.personal_federation import FEDTP, TRANSFORMER
from tests.integration.real_device import await_rounds, set_floor
from tests.integration.test_personal_rounds import state_in

pytestmark = pytest.mark.xdist_group("fits")

FITTING = "[fitting]\nfit = { epochs = 2, learning_rate = 0.3 }\n"


def one_round(make_federation: Make, head: str) -> Federation:
    """Run a federation to its end: one round in which one device took part."""
    tables = FITTING + FEDTP.format(head=head)
    federation = make_federation(model=TRANSFORMER, cap=1, cohort=1, quorum=1, tables=tables)
    federation.start()
    (device,) = federation.enrol(1)
    device.take_part(next_lease(device.check_in()))
    await_rounds(federation, 1)
    return federation


def row_of(federation: Federation, name: str) -> FlatVector:
    """Return the embedding that the newest release holds of a device."""
    row = state_in(federation.folder.releases / "latest")[f"client/{name}"]
    embedding: FlatVector = row[0].astype(np.float32)
    return embedding


def test_a_new_device_fits_its_embedding_in_one_check_in_and_keeps_the_rest(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = one_round(make_federation, head="personal")
    before = read_release(federation.folder.releases / "latest")
    (device,) = make_devices(federation, 1)
    set_floor(device, least_cohort=1)

    device.start("--once")
    assert device.process is not None
    assert device.process.wait(timeout=60) == 0, device.log.read_text()

    plan = make_plan(federation.config, "0" * 32, "fit_embedding", cohort_size=1)
    prepare_compute("cpu", threads=1, model=plan.model)
    hypernetwork = Hypernetwork(
        hypernetwork_of(plan), federation.config.schema.with_roles(Role.GENERATED)
    )
    hypernetwork.phi = torch.tensor(state_in(federation.folder.releases / "latest")["phi"])
    models: list[Fitted] = []
    expected = NewClientFit(plan, hypernetwork).fit(
        torch.tensor(before.parameters),
        training_examples(device.data, federation.config.word_list.load()),
        client_name="device-0002",
        settings=EmbeddingFitSettings(epochs=2, learning_rate=0.3),
        after_epoch=lambda _, model: models.append(model),
    )
    assert expected is not None
    assert np.array_equal(row_of(federation, "device-0002"), expected.numpy())
    kept = read_state(device.folder / "personal" / "current.state", LocalTrainer(plan).layout)
    assert kept is not None
    assert torch.equal(kept.personal, models[-1].personal.personal)
    # The model of everyone is what it was, and so is the other device's row.
    after = read_release(federation.folder.releases / "latest")
    assert after.record.parameters_sha256 == before.record.parameters_sha256
    assert {"client/device-0001", "client/device-0002"} <= state_in(
        federation.folder.releases / "latest"
    ).keys()

    # After a restart it has its embedding, and is told that the run is over.
    federation.kill()
    federation.start()
    device.start("--once")
    assert device.process.wait(timeout=60) == NO_ROUND
    assert device.log.read_text().count("embedding delivered") == 1


def embedding(device: Device, lease: pb.Lease, sender: Device | None = None) -> bytes:
    """Return an embedding of ones for a lease, sealed by its device or by another."""
    device.open_hypernetwork(lease)
    schema = upload_schema(plan_of(lease))
    payload = encode(schema, np.ones(schema.element_count, dtype=np.float32))
    sealed, _ = (sender or device).seal_payload(payload, device.uplink_context(lease))
    return sealed


def sent(device: Device, nonce: bytes, sealed: bytes) -> str:
    """Send an embedding; return the code it is refused with, or nothing."""
    request = pb.SendEmbeddingRequest(lease_nonce=nonce, sealed=sealed)
    try:
        device.stub.SendEmbedding(request, timeout=60)
    except grpc.RpcError as error:
        return code_of(error)
    return ""


def test_an_embedding_counts_once_and_only_from_its_own_device(make_federation: Make) -> None:
    federation = one_round(make_federation, head="shared")
    one, two = federation.enrol(2)
    streams = [device.check_in() for device in (one, two)]
    lease, other = (next_lease(orders) for orders in streams)
    assert plan_of(lease).kind == "fit_embedding"
    assert lease.generated_bytes == 0

    good, foreign = embedding(one, lease), embedding(one, lease, sender=two)
    tampered = good[:-1] + bytes([good[-1] ^ 1])
    from_shared_alone = replace(one.uplink_context(lease), base_sha256=lease.base_sha256)
    schema = upload_schema(plan_of(lease))
    ones = encode(schema, np.ones(schema.element_count, dtype=np.float32))
    unbound, _ = one.seal_payload(ones, from_shared_alone)

    for sealed in (foreign, tampered, unbound, b"", embedding(two, other)):
        assert sent(one, lease.nonce, sealed) == "unseal_failed"
    assert sent(two, lease.nonce, good) == "unknown_lease"
    assert sent(one, lease.nonce, good) == ""
    # The answer was lost: the same again changes nothing.
    assert sent(one, lease.nonce, good) == ""

    assert row_of(federation, one.name).tolist() == [1.0] * schema.element_count
    wait_finished(streams[0])
    # Who has an embedding is asked for no other.
    wait_finished(one.check_in())
    two.stub.RefusePlan(pb.RefusePlanRequest(lease_nonce=other.nonce, code="busy"), timeout=60)
    wait_finished(streams[1])
