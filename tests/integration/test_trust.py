"""Whom the coordinator trusts, for how long, and what it leaves on its disk."""

from pathlib import Path

import grpc
import pytest

from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from tests.integration.conftest import Make
from tests.integration.device import Device, code_of, enrol, next_lease
from tests.integration.federation import Federation


def test_renewed_certificates_work_and_what_was_under_way_still_counts(
    make_federation: Make,
) -> None:
    federation = make_federation(cohort=1, quorum=1)
    federation.start()
    (device,) = federation.enrol(1)
    orders = device.check_in()
    lease = next_lease(orders)
    before = device.identity
    sealed, message_id = device.seal_update(lease)

    device.renew()
    orders = device.check_in()

    assert device.identity.signing.certified.sha256 != before.signing.certified.sha256
    # Sealed and signed with the keys before, sent over a connection with the new ones.
    assert device.send(next_lease(orders), sealed, message_id) == 1
    assert device.take_part(next_lease(orders)) == 2


def test_a_device_that_enrols_again_keeps_its_name_and_loses_its_old_certificates(
    make_federation: Make, tmp_path: Path
) -> None:
    federation = make_federation()
    federation.start()
    (old,) = federation.enrol(1)
    (invite,) = federation.invite(client=old.name)

    new = enrol(invite, tmp_path / "new")

    assert new.name == old.name
    orders = new.check_in()
    with pytest.raises(grpc.RpcError) as caught:
        old.stub.RefusePlan(pb.RefusePlanRequest(), timeout=60)
    assert code_of(caught.value) == "certificate_unknown"
    orders.cancel()
    new.close()


def test_nothing_that_a_device_sent_lies_in_clear_on_the_disk(make_federation: Make) -> None:
    federation = make_federation(cohort=2, quorum=2)
    federation.start()
    device, other = federation.enrol(2)
    streams = [device.check_in(), other.check_in()]
    lease, other_lease = (next_lease(orders) for orders in streams)
    device.take_part(lease)
    sealed, message_id = other.seal_update(other_lease)
    other.open_upload(other_lease, message_id, len(sealed))
    other.upload(other_lease, sealed)

    # One update is committed, one is uploaded: both lie on the disk, sealed.
    contents = on_disk(federation)

    assert sum(len(content) == lease.upload_bytes for content in contents.values()) == 2
    for party, its_lease in ((device, lease), (other, other_lease)):
        for secret in secrets_of(party, its_lease):
            holders = [path for path, content in contents.items() if secret in content]
            assert holders == [], secret


def secrets_of(device: Device, lease: pb.Lease) -> list[bytes]:
    """Return what must not be found: parts of the update, the token, private keys."""
    update = device.update_for(lease)
    middle = update[update.size // 2 :][:8].tobytes()
    keys = [path.read_bytes() for path in device.folder.rglob("*.key")]
    assert keys
    token = bytes.fromhex(device.invite.token)
    return [update[:8].tobytes(), middle, token, *keys]


def on_disk(federation: Federation) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in federation.root.rglob("*") if path.is_file()}


def test_the_coordinators_own_keys_stay_its_own(make_federation: Make) -> None:
    federation = make_federation()
    identity = Identity.load(federation.folder.identity)

    for path in (federation.folder.identity, *federation.folder.identity.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert identity.role == "coordinator"


def test_only_its_owner_can_open_the_operators_socket(make_federation: Make) -> None:
    federation = make_federation()
    federation.start()

    for path in (federation.root, federation.root / "admin.sock"):
        assert path.stat().st_mode & 0o077 == 0
