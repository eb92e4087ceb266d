"""Whatever a device sends, it gets a clear refusal and the round goes on as if it had not."""

import re
import shutil
import socket
import sqlite3
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from models.plan.plan import decode_plan
from models.settings.model import GruLmSettings, schema_of
from models.vector.codec import encode
from privacy.identities.authority import CertificateAuthority
from privacy.identities.certificates import certificate_pem, read_certificate
from privacy.identities.invite import read_invite
from privacy.identities.keys import make_tls_key, private_key_pem
from privacy.identities.party import Identity
from privacy.identities.signing_requests import make_signing_request
from privacy.sealing.envelope import Direction, MessageContext
from privacy.sealing.header import SLIP_BYTES
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.version import PROTOCOL_VERSION, VERSION
from tests.integration.device import Orders, call_of, code_of, enrol, next_lease
from tests.integration.federation import Federation, settings

pytestmark = pytest.mark.xdist_group("refusals")


class Scene:
    """Hold a running federation in the middle of a round that nothing here may disturb."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.device, self.other = federation.devices
        self.orders = self.device.check_in()
        self.other_orders = self.other.check_in()
        self.lease = next_lease(self.orders)
        self.other_lease = next_lease(self.other_orders)

    def payload(self, scale: float = 1.0) -> memoryview:
        plan = decode_plan(self.lease.plan)
        return encode(schema_of(plan.model), self.device.update_for(self.lease) * np.float32(scale))

    def refused_commit(self, sealed: bytes, message_id: bytes) -> str:
        """Send a whole message and return the code it is refused with."""
        self.device.open_upload(self.lease, message_id, len(sealed))
        self.device.upload(self.lease, sealed)
        return refusal(lambda: self.device.commit(self.lease, message_id))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    federation = Federation(tmp_path_factory.mktemp("refusals") / "f", settings())
    federation.start()
    try:
        federation.enrol(2)
        yield Scene(federation)
    finally:
        federation.stop()


def refusal(call: Callable[[], object]) -> str:
    """Return the code that a call is refused with; it must come with one line of text."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    details = call_of(caught.value).details()
    assert details
    assert "\n" not in details
    return code_of(caught.value)


def drain(orders: Orders) -> None:
    for _ in orders:
        pass


# Enrolment.


def test_a_token_that_was_never_given_enrols_nobody(scene: Scene, tmp_path: Path) -> None:
    (invite,) = scene.federation.invite()

    assert refusal(lambda: enrol(invite, tmp_path / "new", token=bytes(16))) == "token_invalid"
    # The token itself is still good.
    assert enrol(invite, tmp_path / "new").name.startswith("device-")


def test_a_used_token_serves_its_own_device_again_and_nobody_else(
    scene: Scene, tmp_path: Path
) -> None:
    (invite,) = scene.federation.invite()
    Identity.create_requests(tmp_path / "first", "device")
    shutil.copytree(tmp_path / "first", tmp_path / "again")

    first = enrol(invite, tmp_path / "first")
    # As when the answer was lost on its way: same keys, same name.
    again = enrol(invite, tmp_path / "again")

    assert again.name == first.name
    assert refusal(lambda: enrol(invite, tmp_path / "thief")) == "token_used"


def test_an_expired_token_enrols_nobody(scene: Scene, tmp_path: Path) -> None:
    (invite,) = scene.federation.invite()
    with sqlite3.connect(scene.federation.folder.root / "store.sqlite") as store:
        store.execute("UPDATE tokens SET expires_at = ? WHERE used_at IS NULL", (time.time() - 1,))

    assert refusal(lambda: enrol(invite, tmp_path / "late")) == "token_expired"


@pytest.mark.parametrize(
    ("version", "older"),
    [
        (PROTOCOL_VERSION - 1, "this device is older"),
        (PROTOCOL_VERSION + 1, "the coordinator is older"),
    ],
)
def test_another_protocol_version_is_told_which_side_is_older(
    scene: Scene, tmp_path: Path, version: int, older: str
) -> None:
    (invite,) = scene.federation.invite()

    with pytest.raises(grpc.RpcError, match=older):
        enrol(invite, tmp_path / "other", version=version)
    with pytest.raises(grpc.RpcError, match=older):
        drain(scene.device.check_in(protocol_version=version))


def test_requests_that_prove_nothing_are_refused(scene: Scene) -> None:
    (file,) = scene.federation.invite()
    invite = read_invite(file)
    credentials = grpc.ssl_channel_credentials(certificate_pem(invite.ca_certificate))
    request = pb.EnrolRequest(
        protocol_version=PROTOCOL_VERSION,
        token=bytes.fromhex(invite.token),
        signing_requests=pb.SigningRequests(tls=b"no", wrapping=b"request", signing=b"at all"),
    )

    with grpc.secure_channel(invite.enrolment_address, credentials) as channel:
        stub = pb_grpc.EnrolmentStub(channel)
        assert refusal(lambda: stub.Enrol(request, timeout=60)) == "signing_request"


# Connections.


def test_a_plain_text_client_fails_and_the_coordinator_goes_on(scene: Scene) -> None:
    for address in (
        scene.device.invite.device_address,
        scene.device.invite.enrolment_address,
    ):
        with grpc.insecure_channel(address) as channel:
            stub = pb_grpc.FederationStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                stub.FetchModel(pb.FetchModelRequest(), timeout=60).__next__()
        assert call_of(caught.value).code() is grpc.StatusCode.UNAVAILABLE
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            assert b"HTTP/1.1 200" not in connection.recv(4096)

    assert scene.device.fetch(scene.lease)


@pytest.mark.parametrize("listener", ["enrolment_address", "device_address"])
def test_tls_1_3_is_negotiated(scene: Scene, tmp_path: Path, listener: str) -> None:
    identity, invite = scene.device.identity, scene.device.invite
    pem = tmp_path / "device.pem"
    pem.write_bytes(identity.tls_key_pem + identity.tls_certificate_pem)
    context = ssl.create_default_context(cadata=certificate_pem(invite.ca_certificate).decode())
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2"])
    host, _, port = getattr(invite, listener).rpartition(":")

    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        context.wrap_socket(connection, server_hostname=host) as secured,
    ):
        assert secured.version() == "TLSv1.3"


def test_a_device_without_a_certificate_does_not_connect(scene: Scene) -> None:
    credentials = grpc.ssl_channel_credentials(certificate_pem(scene.device.invite.ca_certificate))

    with grpc.secure_channel(scene.device.invite.device_address, credentials) as channel:
        stub = pb_grpc.FederationStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.RefusePlan(pb.RefusePlanRequest(), timeout=60)

    assert call_of(caught.value).code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("issuer", ["another authority", "this authority, unknown", "expired"])
def test_a_certificate_that_was_not_given_out_here_is_refused(
    scene: Scene, tmp_path: Path, issuer: str
) -> None:
    folder = scene.federation.folder.authority
    authority = (
        CertificateAuthority.create(tmp_path / "ca", "ab" * 16)
        if issuer == "another authority"
        else CertificateAuthority.load(folder)
    )
    key = make_tls_key()
    request = make_signing_request(key, "device", scene.device.identity.tls.certified.use)
    now = time.time() - 10 * 86400 if issuer == "expired" else None
    der = authority.issue(
        request,
        use=scene.device.identity.tls.certified.use,
        name=scene.device.name,
        role="device",
        days=1,
        now=now,
    )
    credentials = grpc.ssl_channel_credentials(
        certificate_pem(scene.device.invite.ca_certificate),
        private_key_pem(key),
        certificate_pem(der),
    )

    with grpc.secure_channel(scene.device.invite.device_address, credentials) as channel:
        stub = pb_grpc.FederationStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.RefusePlan(pb.RefusePlanRequest(), timeout=60)

    if issuer == "this authority, unknown":
        assert code_of(caught.value) == "certificate_unknown"
    else:
        # TLS itself ends the connection.
        assert call_of(caught.value).code() is grpc.StatusCode.UNAVAILABLE


# Check-in.


@pytest.mark.parametrize("hours", [-25, 25])
def test_a_clock_that_is_wrong_by_a_day_is_refused(scene: Scene, hours: int) -> None:
    assert refusal(lambda: drain(scene.device.check_in(clock_error_s=hours * 3600))) == (
        "clock_wrong"
    )


def test_a_device_that_does_not_train_the_family_is_refused(scene: Scene) -> None:
    families = ["transformer_lm"]
    assert refusal(lambda: drain(scene.device.check_in(model_families=families))) == "model_family"


def test_another_plan_version_is_refused(scene: Scene) -> None:
    assert refusal(lambda: drain(scene.device.check_in(plan_version=9))) == "version_mismatch"


def test_the_older_of_two_agents_with_one_identity_is_refused(scene: Scene) -> None:
    older = scene.other_orders
    scene.other_orders = scene.other.check_in()

    lease = next_lease(scene.other_orders)

    assert refusal(lambda: drain(older)) == "identity_in_use"
    # The newer agent has the lease that the older one had.
    assert lease.nonce == scene.other_lease.nonce


# Downlink and uploads.


def test_a_nonce_serves_its_own_device_only(scene: Scene) -> None:
    foreign = scene.other_lease
    assert refusal(lambda: scene.device.fetch(foreign)) == "unknown_lease"
    assert refusal(lambda: scene.device.open_upload(foreign, bytes(16), 1)) == "unknown_lease"
    assert refusal(lambda: scene.device.upload(foreign, b"x")) == "unknown_lease"
    assert refusal(lambda: scene.device.commit(foreign, bytes(16))) == "unknown_lease"


def test_a_round_seals_its_model_once_for_all_who_fetch_it(scene: Scene) -> None:
    first, again = scene.device.fetch(scene.lease), scene.device.fetch(scene.lease)
    others = scene.other.fetch(scene.other_lease)

    # A key is drawn for every sealing: equal ciphertext is one sealing. Slips are each device's.
    assert first[SLIP_BYTES:] == again[SLIP_BYTES:] == others[SLIP_BYTES:]
    assert first[:SLIP_BYTES] != others[:SLIP_BYTES]
    scene.device.open_model(scene.lease, first)
    scene.other.open_model(scene.other_lease, others)


def test_a_lease_names_the_coordinators_version(scene: Scene) -> None:
    assert scene.lease.software_version == VERSION


def test_a_model_is_fetched_again_from_any_byte(scene: Scene) -> None:
    whole = scene.device.fetch(scene.lease)

    assert len(whole) == scene.lease.download_bytes
    for offset in (1, 576, 1000, len(whole) - 1, len(whole)):
        assert scene.device.fetch(scene.lease, offset) == whole[offset:]
    assert refusal(lambda: scene.device.fetch(scene.lease, len(whole) + 1)) == "wrong_offset"


def test_an_upload_must_have_the_size_that_the_schema_fixes(scene: Scene) -> None:
    size = scene.lease.upload_bytes

    def opening(message_id: bytes, total: int) -> Callable[[], object]:
        return lambda: scene.device.open_upload(scene.lease, message_id, total)

    for wrong in (0, size - 1, size + 1, 1 << 60):
        assert refusal(opening(bytes(16), wrong)) == "wrong_size"
    assert refusal(opening(bytes(15), size)) == "wrong_size"


def test_an_upload_goes_on_where_it_stopped(scene: Scene) -> None:
    sealed, message_id = scene.device.seal_update(scene.lease)
    size = len(sealed)
    assert scene.device.open_upload(scene.lease, message_id, size).offset == 0

    assert scene.device.upload(scene.lease, sealed[:5000]) == 5000

    assert scene.device.open_upload(scene.lease, message_id, size).offset == 5000
    assert refusal(lambda: scene.device.upload(scene.lease, sealed, 4999)) == "wrong_offset"
    assert refusal(lambda: scene.device.upload(scene.lease, sealed, 5001)) == "wrong_offset"
    assert refusal(lambda: scene.device.commit(scene.lease, message_id)) == "incomplete_upload"
    assert scene.device.upload(scene.lease, sealed, 5000) == size
    too_long = sealed + b"x"
    assert refusal(lambda: scene.device.upload(scene.lease, too_long, size)) == "wrong_size"
    # Another message of the same lease takes its place.
    assert scene.device.open_upload(scene.lease, bytes(16), size).offset == 0
    assert refusal(lambda: scene.device.commit(scene.lease, message_id)) == "incomplete_upload"


def test_a_chunk_may_not_be_larger_than_two_mebibytes(scene: Scene) -> None:
    scene.device.open_upload(scene.lease, bytes(16), scene.lease.upload_bytes)
    large = bytes((2 << 20) + 1)

    assert (
        refusal(lambda: scene.device.upload(scene.lease, large, chunk_bytes=len(large)))
        == "chunk_size"
    )
    # gRPC's own limit of 4 MiB stays in place.
    with pytest.raises(grpc.RpcError) as caught:
        scene.device.upload(scene.lease, bytes(5 << 20), chunk_bytes=5 << 20)
    assert call_of(caught.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("place", [0, 100, 600, 700, 900, 1400, -1])
def test_one_flipped_bit_anywhere_is_refused(scene: Scene, place: int) -> None:
    sealed, message_id = scene.device.seal_update(scene.lease)
    changed = bytearray(sealed)
    changed[place] ^= 1

    assert scene.refused_commit(bytes(changed), message_id) == "unseal_failed"


@pytest.mark.parametrize(
    "change",
    [
        {"direction": Direction.DOWNLINK},
        {"run": bytes(16)},
        {"round_number": 2},
        {"slot": 1},
        {"lease_nonce": bytes(16)},
        {"base_sha256": bytes(32)},
        {"schema_sha256": bytes(32)},
        {"plan_sha256": bytes(32)},
        {"deadline_ms": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_update_for_anything_else_is_refused(
    scene: Scene, change: dict[str, int | bytes]
) -> None:
    context = scene.device.uplink_context(scene.lease)
    other = _replaced(context, change)
    if other == context:  # the device's own slot is 1
        other = replace(context, slot=0)

    sealed, message_id = scene.device.seal_payload(scene.payload(), other)

    assert scene.refused_commit(sealed, message_id) == "unseal_failed"


def _replaced(context: MessageContext, change: dict[str, int | bytes]) -> MessageContext:
    fields = {name: change.get(name, getattr(context, name)) for name in vars(context)}
    return MessageContext(**fields)


def test_an_update_signed_by_another_device_is_refused(scene: Scene) -> None:
    context = scene.device.uplink_context(scene.lease)
    sealed, message_id = scene.other.seal_payload(scene.payload(), context)

    assert scene.refused_commit(sealed, message_id) == "unseal_failed"


def test_an_update_sealed_to_another_recipient_is_refused(scene: Scene) -> None:
    recipient = read_certificate(scene.other.identity.certificates.wrapping)
    context = scene.device.uplink_context(scene.lease)
    sealed, message_id = scene.device.seal_payload(scene.payload(), context, recipient)

    assert scene.refused_commit(sealed, message_id) == "unseal_failed"


def test_an_update_announced_under_another_identifier_is_refused(scene: Scene) -> None:
    sealed, _ = scene.device.seal_update(scene.lease)

    assert scene.refused_commit(sealed, bytes(16)) == "unseal_failed"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused(scene: Scene, value: float) -> None:
    payload = bytearray(scene.payload())
    payload[-4:] = np.float32(value).tobytes()
    context = scene.device.uplink_context(scene.lease)

    assert scene.refused_commit(*scene.device.seal_payload(bytes(payload), context)) == (
        "malformed_update"
    )


@pytest.mark.parametrize("value", [1e38, -3e38, 2e18])
def test_an_update_too_large_to_aggregate_is_refused(scene: Scene, value: float) -> None:
    payload = bytearray(scene.payload())
    payload[-4:] = np.float32(value).tobytes()
    context = scene.device.uplink_context(scene.lease)

    assert scene.refused_commit(*scene.device.seal_payload(bytes(payload), context)) == (
        "malformed_update"
    )


def test_an_update_of_another_model_is_refused(scene: Scene) -> None:
    payload = bytearray(scene.payload())
    # The digest of the schema lies behind magic, version and a zero word.
    payload[16:48] = schema_of(GruLmSettings(vocabulary_size=3)).sha256
    context = scene.device.uplink_context(scene.lease)

    assert scene.refused_commit(*scene.device.seal_payload(bytes(payload), context)) == (
        "malformed_update"
    )


def test_an_update_without_examples_is_refused(scene: Scene) -> None:
    sealed, message_id = scene.device.seal_update(scene.lease)
    scene.device.open_upload(scene.lease, message_id, len(sealed))
    scene.device.upload(scene.lease, sealed)

    assert refusal(lambda: scene.device.commit(scene.lease, message_id, 0)) == "example_count"


def test_a_full_disk_is_told_and_the_upload_can_be_tried_again(scene: Scene) -> None:
    sealed, message_id = scene.device.seal_update(scene.lease)
    name = f"{scene.lease.nonce.hex()}.{message_id.hex()}.part"
    # Every write to this file fails as on a full disk.
    (scene.federation.folder.uploads / name).symlink_to("/dev/full")
    scene.device.open_upload(scene.lease, message_id, len(sealed))

    assert refusal(lambda: scene.device.upload(scene.lease, sealed)) == "disk_full"

    assert scene.device.open_upload(scene.lease, bytes(16), len(sealed)).offset == 0


def test_counts_for_a_training_lease_are_refused(scene: Scene) -> None:
    assert refusal(lambda: scene.device.report(scene.lease, tokens=1, loss=1.0)) == (
        "wrong_plan_kind"
    )


def test_an_unknown_word_list_is_refused(scene: Scene) -> None:
    request = pb.FetchVocabularyRequest(sha256=bytes(32))

    assert refusal(lambda: list(scene.device.stub.FetchVocabulary(request, timeout=60))) == (
        "unknown_vocabulary"
    )
    words = decode_plan(scene.lease.plan).vocabulary
    assert words is not None
    own = bytes.fromhex(words.sha256)
    chunks = scene.device.stub.FetchVocabulary(pb.FetchVocabularyRequest(sha256=own), timeout=60)
    assert b"".join(chunk.data for chunk in chunks).startswith(b"<unk>\n<eos>\n")


# Last in this file: what was refused before has changed nothing.


def test_after_all_of_this_the_round_ends_as_if_nothing_had_happened(scene: Scene) -> None:
    sealed, message_id = scene.device.seal_update(scene.lease)
    round_number = scene.device.send(scene.lease, sealed, message_id)

    # Repeats get the same answer; another update of the same device does not count.
    assert scene.device.commit(scene.lease, message_id) == round_number == 1
    assert scene.device.open_upload(scene.lease, message_id, len(sealed)).committed
    assert refusal(lambda: scene.device.commit(scene.lease, bytes(16))) == "duplicate"
    scene.other.take_part(scene.other_lease)

    deadline = time.monotonic() + 60
    while not scene.federation.releases() and time.monotonic() < deadline:
        time.sleep(0.05)
    # After the round the answer is still the same; a nonce of it is late for anything new.
    assert scene.device.commit(scene.lease, message_id) == 1
    assert refusal(lambda: scene.device.fetch(scene.lease)) == "late"
    (first,) = scene.federation.releases()
    assert first.contribution_count == 2
    assert re.fullmatch("[0-9a-f]{64}", first.parameters_sha256.hex())
