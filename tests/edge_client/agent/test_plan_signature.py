"""A device does what the coordinator signed, and can show it later."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_client.agent.lease import serve_lease
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Trained
from edge_client.owner.doctor import examine
from edge_client.owner.finding import Finding
from models.plan.signed_plan import SignedPlan
from privacy.identities.authority import CertificateAuthority
from protos import federation_pb2 as wire
from tests.edge_client.stand_ins import (
    MESSAGE_ID,
    RUN,
    StandInTrainer,
    StandInTransport,
    make_device,
    make_lease,
    shipped_plan,
    sign_lease,
    stand_in_coordinator,
)
from tests.privacy.conftest import enrol

TRAINED = Trained(example_count=12, message_id=MESSAGE_ID)


def served(folder: Path, lease: wire.Lease) -> tuple[DeviceFolder, StandInTransport]:
    device, transport = make_device(folder, StandInTrainer(TRAINED)), StandInTransport()
    asyncio.run(serve_lease(lease, device, transport))
    return device.folder, transport


def last_plan(folder: DeviceFolder) -> Finding:
    found = asyncio.run(examine(folder, now=time.time()))
    return next(finding for finding in found if finding.subject == "last plan")


def set_field(name: str, value: object) -> Callable[[wire.Lease], None]:
    return lambda lease: setattr(lease, name, value)


@pytest.mark.parametrize(
    "change",
    [
        set_field("plan_signature", b""),
        set_field("plan_signature", bytes(384)),
        set_field("round_number", 2),
        set_field("attempt", 1),
        # Weaker noise, say: whoever has only the TLS key can write it, and not sign it.
        set_field("plan", shipped_plan(seed=12).encode()),
        # The signature comes before anything else: these bytes are never decoded.
        set_field("plan", b"[" * 1_000_000),
        lambda lease: sign_lease(lease, run="11" * 16),
    ],
    ids=["unsigned", "zeros", "round", "attempt", "plan", "no plan", "run"],
)
def test_a_plan_that_is_not_signed_is_refused_before_anything_else(
    tmp_path: Path, change: Callable[[wire.Lease], None]
) -> None:
    lease = make_lease()
    change(lease)

    folder, transport = served(tmp_path, lease)

    assert transport.calls == [("refuse_plan", lease.nonce, "plan_not_signed")]
    assert folder.signed_plan() is None


def test_a_plan_signed_by_another_federations_coordinator_is_refused(tmp_path: Path) -> None:
    other = CertificateAuthority.create(tmp_path / "authority", RUN)
    stranger = enrol(other, tmp_path / "identity", "coordinator", "coordinator")
    lease = sign_lease(make_lease(), stranger)

    _, transport = served(tmp_path / "device", lease)

    assert transport.calls == [("refuse_plan", lease.nonce, "plan_not_signed")]


def test_a_device_keeps_the_proof_of_what_it_was_asked_for(tmp_path: Path) -> None:
    lease = make_lease(number=3)

    folder, _ = served(tmp_path, lease)

    kept = folder.signed_plan()
    assert kept is not None
    told = SignedPlan.decode(kept)
    assert told.plan == lease.plan
    assert told.check(stand_in_coordinator()[0]).role == "coordinator"
    digest = hashlib.sha256(lease.plan).hexdigest()
    assert last_plan(folder) == Finding(
        "last plan",
        True,
        f"round 3, attempt 0: signed by the coordinator; SHA-256 of the plan {digest}",
    )


def test_the_doctor_tells_why_the_newest_plan_was_refused_until_one_is_taken(
    tmp_path: Path,
) -> None:
    unsigned = make_lease(number=3)
    unsigned.plan_signature = b""
    folder, _ = served(tmp_path, unsigned)
    assert not last_plan(folder).good
    assert last_plan(folder).text.startswith("round 3: plan refused (plan_not_signed): ")

    served(tmp_path, make_lease(number=4))

    assert last_plan(folder).good
    assert last_plan(folder).text.startswith("round 4, attempt 0: signed")


def test_a_proof_that_was_changed_proves_nothing(tmp_path: Path) -> None:
    folder, _ = served(tmp_path, make_lease())
    kept = folder.signed_plan()
    assert kept is not None
    folder.note_signed_plan(kept.replace(b'"round_number":1', b'"round_number":2'))

    found = last_plan(folder)

    assert not found.good
    assert "not signed by this key" in found.text
