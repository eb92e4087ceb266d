"""A coordinator renews its own certificates while it serves, and devices follow."""

import socket
import ssl
import time

import pytest

from privacy.identities.certificates import certificate_pem, read_certificate
from privacy.identities.chains import split_chain
from privacy.identities.issuing_key import load_issuer
from privacy.identities.party import Identity
from protos import federation_pb2 as pb
from tests.integration.conftest import Make, MakeDevices
from tests.integration.device import Device, next_lease
from tests.integration.federation import Federation
from tests.integration.real_device import await_rounds
from tests.integration.serving_process import LEAP_S
from tests.integration.test_round import expected_digest

pytestmark = pytest.mark.xdist_group("coordinator renewal")

DAY_S = 86_400.0


def reissue(federation: Federation, *, days: float, due_in_s: float) -> Identity:
    """Give the coordinator certificates of which two thirds are over in a moment."""
    folder = federation.folder
    authority = load_issuer(folder.authority)
    requests = Identity.create_requests(folder.identity, "coordinator")
    now = time.time()
    issued_at = now + due_in_s - days * DAY_S * 2 / 3
    certificates = authority.issue_all(
        requests,
        name="coordinator",
        role="coordinator",
        days=days,
        hostnames=["localhost", "127.0.0.1", "sotto.test"],
        now=issued_at,
    )
    return Identity.install(
        folder.identity, certificates, ca=authority.certificate, role="coordinator", now=now
    )


def shown_to(device: Device, listener: str) -> bytes:
    """Return the TLS certificate, DER, that a new connection to a listener sees."""
    pem = device.folder / "device.pem"
    pem.write_bytes(device.identity.tls_key_pem + device.identity.tls_certificate_pem)
    authority = certificate_pem(device.invite.ca_certificate).decode()
    context = ssl.create_default_context(cadata=authority)
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2"])
    host, _, port = listener.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        # The name was given at the start and must stand in every later certificate.
        context.wrap_socket(connection, server_hostname="sotto.test") as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    assert der is not None
    return der


def shown_by(identity: Identity) -> bytes:
    """Return the TLS certificate of an identity, DER, without the issuing key's."""
    return split_chain(identity.certificates.tls)[0]


def take_up(device: Device, lease: pb.Lease) -> None:
    """Do what a device does with the keys that its lease names."""
    device.coordinator_wrapping = read_certificate(lease.coordinator.wrapping)
    device.coordinator_signing = read_certificate(lease.coordinator.signing)


def test_keys_change_between_rounds_and_no_connection_is_dropped(make_federation: Make) -> None:
    federation = make_federation(cap=2, cohort=1, quorum=1, deadline=10 * LEAP_S)
    before = reissue(federation, days=1, due_in_s=LEAP_S / 2)
    federation.start()
    (device,) = federation.enrol(1)
    listeners = (device.invite.device_address, device.invite.enrolment_address)
    orders = device.check_in()
    first = next_lease(orders)
    take_up(device, first)
    assert first.coordinator.signing == before.certificates.signing
    assert [shown_to(device, listener) for listener in listeners] == [shown_by(before)] * 2

    # Due in the middle of round 1, which ends with the keys that it began with.
    federation.leap()
    device.take_part(first)
    second = next_lease(orders)
    after = Identity.load(federation.folder.identity)

    # The same stream goes on, and its next lease names the new keys.
    assert second.coordinator.signing == after.certificates.signing
    assert second.coordinator.wrapping == after.certificates.wrapping
    assert not {*after.certificates} & {*before.certificates}
    assert after.renewal_due_at > time.time() + 19 * DAY_S
    assert [shown_to(device, listener) for listener in listeners] == [shown_by(after)] * 2
    take_up(device, second)
    device.take_part(second)
    await_rounds(federation, 2)
    last = federation.releases()[-1]
    assert last.parameters_sha256.hex() == expected_digest(federation, [device.name], 2)
    assert (federation.folder.releases / "latest" / "signer.der").read_bytes() == (
        after.certificates.signing
    )


def test_a_coordinator_that_was_away_renews_before_it_listens(make_federation: Make) -> None:
    federation = make_federation(cap=1, cohort=1, quorum=1)
    expired = reissue(federation, days=1, due_in_s=-3600.0)

    federation.start()

    (device,) = federation.enrol(1)
    tls = shown_to(device, device.invite.device_address)
    assert tls == shown_by(Identity.load(federation.folder.identity))
    assert tls != shown_by(expired)


def test_agents_follow_new_keys_without_training_twice(
    make_federation: Make, make_devices: MakeDevices
) -> None:
    federation = make_federation(cap=1, cohort=2, quorum=2)
    federation.start()
    devices = make_devices(federation, 2)
    known = (devices[0].folder / "coordinator.json").read_bytes()
    federation.stop()
    # The agents were enrolled with keys that are renewed while they are away.
    reissue(federation, days=1, due_in_s=-60.0)
    federation.start()

    for device in devices:
        device.start()
    await_rounds(federation, 1)

    assert (devices[0].folder / "coordinator.json").read_bytes() != known
    for device in devices:
        log = device.log.read_text()
        assert "the coordinator's keys have changed" in log
        assert (log.count("train started"), log.count("certificates renewed")) == (1, 0)


def test_certificates_that_cannot_be_renewed_are_told_of_and_serve_on(
    make_federation: Make,
) -> None:
    federation = make_federation()
    before = reissue(federation, days=1, due_in_s=-60.0)
    # As a damaged disk leaves it: keys were begun and are not there.
    (federation.folder.identity / "pending").mkdir(mode=0o700)

    federation.start()

    assert "the coordinator's certificates cannot be renewed: key file" in federation.log
    assert Identity.load(federation.folder.identity).certificates == before.certificates
