"""A fault in a masked round costs an attempt or an update, and blames nobody falsely."""

import shutil
from pathlib import Path

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from models.masked.layout import masked_layout
from models.masked.payload import split_payload
from privacy.identities.party import Identity
from privacy.masking.packing import pack, unpack
from privacy.sealing.envelope import open_sealed
from protos import federation_pb2 as pb
from server.helper.cli import main as helper_main
from server.operating.commands import Federation as Operated
from tests.integration.conftest import MakeMasked
from tests.integration.device import Orders, code_of, next_lease, plan_of
from tests.integration.masked_federation import (
    MaskedDevice,
    MaskedFederation,
    made_up,
    on_grid,
)
from tests.integration.real_device import await_rounds
from tests.waiting import until


def test_a_device_can_spoil_an_attempt_or_be_left_out_and_no_more(
    masked_federation: MakeMasked,
) -> None:
    federation = masked_federation(cap=3, cohort=3, quorum=2)
    federation.helper.start()
    federation.start()
    honest, other, hostile = federation.enrol(3)
    streams = {device.name: device.check_in() for device in federation.devices}

    # A seed of another attempt is refused before it counts, and its lease goes on.
    leases = leases_of(federation, streams)
    lease = leases[hostile.name]
    stale = hostile.seal_vector(lease, vector_of(hostile, lease), attempt=lease.attempt + 1)
    with pytest.raises(grpc.RpcError) as refused:
        hostile.send(lease, *stale)
    assert code_of(refused.value) == "malformed_update"

    # A seed that does not fit its vector: no check before the sum can tell.
    hostile.is_wrong = True
    for device in federation.devices:
        device.take_part(leases[device.name])
    leases = leases_of(federation, streams)
    assert {lease.attempt for lease in leases.values()} == {1}
    (told,) = [line for line in federation.log.splitlines() if "masks_do_not_cancel" in line]
    assert "device-" not in told
    assert not any(path.is_file() for path in federation.folder.updates.rglob("*"))

    # A seed that the helper cannot open: the others count, and only that update expires.
    hostile.is_wrong = False
    honest.take_part(leases[honest.name])
    other.take_part(leases[other.name])
    lease = leases[hostile.name]
    hostile.send(
        lease,
        *hostile.seal_vector(lease, vector_of(hostile, lease), helper=hostile.coordinator_wrapping),
    )
    await_rounds(federation, 1)
    assert [release.contribution_count for release in federation.releases()] == [2]
    assert "expired: the helper could not unmask it" in federation.log
    answered = [signed.answer.question for signed in federation.helper.answers()]
    assert answered == [(1, 0, 0), (1, 1, 0)]


def test_what_lies_at_the_coordinator_is_as_random_as_a_keystream(
    masked_federation: MakeMasked,
) -> None:
    federation = masked_federation(cap=1, cohort=2, quorum=2)
    federation.start()
    (device, other) = federation.enrol(2)
    streams = {one.name: one.check_in() for one in (device, other)}
    lease = next_lease(streams[device.name])
    device.take_part(lease)

    # A thief of the coordinator's disk and keys can open this much.
    (blob,) = [path for path in federation.folder.updates.rglob("*") if path.is_file()]
    layout = masked_layout(plan_of(lease))
    payload = open_sealed(
        [blob.read_bytes()],
        device.uplink_context(lease),
        payload_bytes=layout.payload_bytes,
        recipient=Identity.load(federation.folder.identity),
        sender=device.identity.signing.certified,
    )
    packed = split_payload(layout, payload).packed

    # 255 degrees of freedom: outside of 255 +- 7 sqrt(510) with a chance below 1e-8, and the
    # vector without its mask is far outside.
    assert abs(chi_square(packed) - 255) < 7 * np.sqrt(510)
    bits, clear = layout.grid.bits, vector_of(device, lease)
    modulo = (clear % (1 << bits)).astype(np.uint32)
    assert chi_square(pack(modulo, bits)) > 10 * 255
    # And nothing of the vector is in it: correlations of n elements are N(0, 1/n).
    masked = unpack(packed, layout.element_count, bits)
    assert abs(np.corrcoef(masked, clear)[0, 1]) < 6 / np.sqrt(len(clear))


def test_a_helper_that_cannot_answer_has_the_round_tried_again(
    masked_federation: MakeMasked, tmp_path: Path
) -> None:
    federation = masked_federation(more_rounds="retry_limit = 20")
    helper = federation.helper
    federation.start()
    federation.enrol(2)
    streams = {device.name: device.check_in() for device in federation.devices}

    # Nobody listens until the deadline.
    take_part(federation, streams)
    until(lambda: "the helper is away, and is asked again" in federation.log)
    federation.leap()
    until(lambda: "helper_away" in federation.log)
    assert "cannot be reached: rounds wait" in Operated(federation.root).status().helper
    # Its clock is more than a day behind.
    helper.start(clock_error_s=-24.5 * 3600)
    take_part_until(federation, streams, "helper_refused (clock_wrong)")
    helper.stop()
    backup = tmp_path / "backup"
    shutil.copytree(helper.folder.root, backup)
    helper.start()
    while not federation.releases():
        take_part(federation, streams)
    # It is put back as it was before it answered, and would answer another set.
    helper.stop()
    shutil.rmtree(helper.folder.root)
    shutil.copytree(backup, helper.folder.root)
    helper.start()
    take_part_until(federation, streams, "helper_refused (helper_behind)")
    helper.stop()
    assert (
        helper_main(["recover", str(helper.folder.root), str(federation.folder.helper_answers)])
        == 0
    )
    helper.start()
    assert Operated(federation.root).status().helper.endswith(" answers")
    released = len(federation.releases())
    while len(federation.releases()) == released:
        take_part(federation, streams)


def leases_of(federation: MaskedFederation, streams: dict[str, Orders]) -> dict[str, pb.Lease]:
    return {device.name: next_lease(streams[device.name]) for device in federation.devices}


def take_part(federation: MaskedFederation, streams: dict[str, Orders]) -> None:
    """Let every device take part in one attempt."""
    leases = leases_of(federation, streams)
    for device in federation.devices:
        device.take_part(leases[device.name])


def take_part_until(federation: MaskedFederation, streams: dict[str, Orders], line: str) -> None:
    while line not in federation.log:
        take_part(federation, streams)


def vector_of(device: MaskedDevice, lease: pb.Lease) -> NDArray[np.int64]:
    plan = plan_of(lease)
    return on_grid(masked_layout(plan), plan, made_up(plan, lease.round_number, device.name))


def chi_square(packed: memoryview) -> float:
    """Return how far the counts of the 256 octets are from equal ones."""
    counts = np.bincount(np.frombuffer(packed, np.uint8), minlength=256)
    expected = len(packed) / 256
    return float(((counts - expected) ** 2 / expected).sum())
