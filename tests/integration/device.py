"""A device reduced to the wire: it enrols, checks in, fetches, and sends back a made-up update.

It shares no code with ``edge_client``, so the two stand against the coordinator independently, and
it can be told to misbehave. Its updates depend on its name and the round alone.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import grpc
import numpy as np

from models.plan.plan import (
    Plan,
    decode_plan,
    hypernetwork_of,
    plan_schema,
    released_schema,
    upload_schema,
)
from models.settings.hypernetwork import hypernetwork_schema
from models.vector.base_digest import base_digest
from models.vector.codec import FlatVector, decode, encode, payload_size
from models.vector.schema import SENT, Role, Schema
from models.vector.seeds import client_seed
from privacy.identities.certificates import (
    Certificates,
    CertifiedKey,
    certificate_pem,
    read_certificate,
)
from privacy.identities.invite import Invite, read_invite
from privacy.identities.party import Identity
from privacy.identities.signing_requests import SigningRequests
from privacy.sealing.envelope import Direction, MessageContext, open_sealed, seal
from protos import federation_pb2 as pb
from protos import federation_pb2_grpc as pb_grpc
from protos.version import PLAN_VERSION, PROTOCOL_VERSION
from server.config.federation import FederationConfig

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 30.0


class Orders(Protocol):
    """The stream of work orders, as long as the device stays."""

    def __iter__(self) -> Iterator[pb.WorkOrder]: ...
    def cancel(self) -> bool: ...


def call_of(error: grpc.RpcError) -> grpc.Call:
    """Return the failed call: every error of a call that was made is also that call."""
    return cast("grpc.Call", error)


def code_of(error: grpc.RpcError) -> str:
    """Return the ``sotto-code`` of a refusal."""
    return str(dict(call_of(error).trailing_metadata() or ()).get("sotto-code"))


class Device:
    """Hold one enrolled device."""

    def __init__(self, folder: Path, invite: Invite, answer: pb.EnrolResponse) -> None:
        self.invite = invite
        self.name = answer.client_name
        self.run = answer.run
        self.folder = folder
        self.bases: dict[bytes, bytes] = {}
        self.identity = install(folder, invite, answer.device)
        self.coordinator_wrapping = read_certificate(answer.coordinator.wrapping)
        self.coordinator_signing = read_certificate(answer.coordinator.signing)
        self.connect()

    def connect(self) -> None:
        """Open the connection that needs the device's certificate."""
        credentials = grpc.ssl_channel_credentials(
            certificate_pem(self.invite.ca_certificate),
            self.identity.tls_key_pem,
            self.identity.tls_certificate_pem,
        )
        self.channel = grpc.secure_channel(self.invite.device_address, credentials)
        self.stub = pb_grpc.FederationStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    def check_in(
        self,
        *,
        protocol_version: int = PROTOCOL_VERSION,
        plan_version: int = PLAN_VERSION,
        model_families: Sequence[str] = (),
        clock_error_s: float = 0.0,
    ) -> Orders:
        """Open the stream."""
        return self.stub.CheckIn(
            pb.CheckInRequest(
                protocol_version=protocol_version,
                plan_version=plan_version,
                software_version="test",
                model_families=model_families,
                device_time_ms=round((time.time() + clock_error_s) * 1000),
            )
        )

    def fetch(
        self,
        lease: pb.Lease,
        offset: int = 0,
        part: pb.ModelPart = pb.MODEL_PART_SHARED,
    ) -> bytes:
        request = pb.FetchModelRequest(lease_nonce=lease.nonce, offset=offset, part=part)
        return b"".join(piece.data for piece in self.stub.FetchModel(request, timeout=TIMEOUT_S))

    def open_model(self, lease: pb.Lease, sealed: bytes) -> FlatVector:
        """Open the round's shared model and hold it against what the lease says."""
        flat = self._open_for_all(lease, released_schema(decode_plan(lease.plan)), sealed)
        assert hashlib.sha256(flat.data).digest() == lease.base_sha256
        return flat

    def _open_for_all(self, lease: pb.Lease, schema: Schema, sealed: bytes) -> FlatVector:
        """Open what is sealed once for every device."""
        plan = decode_plan(lease.plan)
        context = MessageContext(
            direction=Direction.DOWNLINK,
            run=bytes.fromhex(plan.run),
            round_number=lease.round_number,
            slot=0,
            lease_nonce=bytes(16),
            base_sha256=lease.base_sha256,
            schema_sha256=schema.sha256,
            deadline_ms=0,
        )
        payload = open_sealed(
            [sealed],
            context,
            payload_bytes=payload_size(schema),
            recipient=self.identity,
            sender=self.coordinator_signing,
        )
        return decode(schema, payload)

    def open_generated(self, lease: pb.Lease, sealed: bytes) -> FlatVector:
        """Open the part that was generated for this device, and remember what it started from."""
        plan = decode_plan(lease.plan)
        schema = plan_schema(plan).with_roles(Role.GENERATED)
        context = MessageContext(
            direction=Direction.DOWNLINK,
            run=bytes.fromhex(plan.run),
            round_number=lease.round_number,
            slot=lease.slot,
            lease_nonce=lease.nonce,
            base_sha256=lease.base_sha256,
            schema_sha256=schema.sha256,
            deadline_ms=0,
        )
        payload = open_sealed(
            [sealed],
            context,
            payload_bytes=payload_size(schema),
            recipient=self.identity,
            sender=self.coordinator_signing,
        )
        flat = decode(schema, payload)
        self.bases[lease.nonce] = base_digest(lease.base_sha256, hashlib.sha256(flat.data).digest())
        return flat

    def open_hypernetwork(self, lease: pb.Lease) -> None:
        """Fetch and open what an embedding is fitted with, and remember what it started from."""
        plan = decode_plan(lease.plan)
        generated = plan_schema(plan).with_roles(Role.GENERATED)
        schema = hypernetwork_schema(hypernetwork_of(plan), generated)
        flat = self._open_for_all(lease, schema, self.fetch(lease, part=pb.MODEL_PART_HYPERNETWORK))
        sha256 = hashlib.sha256(flat.data).digest()
        self.bases[lease.nonce] = base_digest(lease.base_sha256, sha256)

    def receive(self, lease: pb.Lease) -> None:
        """Fetch and open everything that there is for the lease."""
        self.open_model(lease, self.fetch(lease))
        if lease.generated_bytes:
            self.open_generated(lease, self.fetch(lease, part=pb.MODEL_PART_GENERATED))

    def update_for(self, lease: pb.Lease) -> FlatVector:
        """Make up an update that depends on the device's name and the round alone."""
        return self.made_up(plan_of(lease), lease.round_number)

    def made_up(self, plan: Plan | FederationConfig, round_number: int) -> FlatVector:
        """Make up the update of a round without its lease."""
        seed = client_seed(plan.seed, round_number, self.name)
        roles = plan_schema(plan) if isinstance(plan, Plan) else plan.schema
        count = roles.with_roles(*SENT).element_count
        return np.random.default_rng(seed).normal(0, 0.01, count).astype(np.float32)

    def uplink_context(self, lease: pb.Lease) -> MessageContext:
        plan = decode_plan(lease.plan)
        return MessageContext(
            direction=Direction.UPLINK,
            run=bytes.fromhex(plan.run),
            round_number=lease.round_number,
            slot=lease.slot,
            lease_nonce=lease.nonce,
            base_sha256=self.bases.get(lease.nonce, lease.base_sha256),
            schema_sha256=upload_schema(plan).sha256,
            plan_sha256=hashlib.sha256(lease.plan).digest(),
            deadline_ms=lease.deadline_ms,
        )

    def seal_update(self, lease: pb.Lease, update: FlatVector | None = None) -> tuple[bytes, bytes]:
        """Return a sealed update and its message id."""
        plan = decode_plan(lease.plan)
        flat = self.update_for(lease) if update is None else update
        return self.seal_payload(encode(upload_schema(plan), flat), self.uplink_context(lease))

    def seal_payload(
        self,
        payload: bytes | memoryview,
        context: MessageContext,
        recipient: CertifiedKey | None = None,
    ) -> tuple[bytes, bytes]:
        message = seal(
            payload,
            context,
            sender=self.identity,
            recipient=recipient or self.coordinator_wrapping,
        )
        return b"".join(map(bytes, message.views())), message.message_id

    def open_upload(self, lease: pb.Lease, message_id: bytes, total: int) -> pb.OpenUploadResponse:
        request = pb.OpenUploadRequest(
            lease_nonce=lease.nonce, message_id=message_id, total_bytes=total
        )
        return self.stub.OpenUpload(request, timeout=TIMEOUT_S)

    def upload(
        self, lease: pb.Lease, sealed: bytes, offset: int = 0, chunk_bytes: int = CHUNK_BYTES
    ) -> int:
        def chunks() -> Iterator[pb.UploadChunk]:
            for start in range(offset, len(sealed), chunk_bytes):
                piece = sealed[start : start + chunk_bytes]
                if start == offset:
                    yield pb.UploadChunk(lease_nonce=lease.nonce, offset=offset, data=piece)
                else:
                    yield pb.UploadChunk(data=piece)

        return self.stub.Upload(chunks(), timeout=TIMEOUT_S).offset

    def commit(self, lease: pb.Lease, message_id: bytes, example_count: int | None = None) -> int:
        """Commit; by itself the device tells 100 examples, or 0 where a guarantee forbids it."""
        if example_count is None:
            example_count = 0 if plan_of(lease).privacy.guarantees_privacy else 100
        request = pb.CommitUploadRequest(
            lease_nonce=lease.nonce, message_id=message_id, example_count=example_count
        )
        return self.stub.CommitUpload(request, timeout=TIMEOUT_S).round_number

    def send(self, lease: pb.Lease, sealed: bytes, message_id: bytes) -> int:
        """Upload from wherever it stopped, and commit."""
        opened = self.open_upload(lease, message_id, len(sealed))
        if opened.offset < len(sealed):
            self.upload(lease, sealed, opened.offset)
        return self.commit(lease, message_id)

    def report(
        self,
        lease: pb.Lease,
        *,
        tokens: int,
        loss: float,
        top1_hits: int = 0,
        top3_hits: int = 0,
        words: int | None = None,
        unknown: int = 0,
    ) -> None:
        """Send evaluation counts, without ``words`` as a version of before did; loss in nats."""
        self.stub.ReportEvaluation(
            pb.ReportEvaluationRequest(
                lease_nonce=lease.nonce,
                token_count=tokens,
                log_loss_sum=loss,
                top1_hits=top1_hits,
                top3_hits=top3_hits,
                word_count=words,
                unknown_count=unknown,
            ),
            timeout=TIMEOUT_S,
        )

    def renew(self) -> None:
        """Exchange all certificates and connect with the new ones."""
        requests = Identity.create_requests(self.folder, "device")
        answer = self.stub.RenewCertificates(
            pb.RenewCertificatesRequest(signing_requests=_as_message(requests)), timeout=TIMEOUT_S
        )
        self.identity = install(self.folder, self.invite, answer.device)
        self.coordinator_wrapping = read_certificate(answer.coordinator.wrapping)
        self.coordinator_signing = read_certificate(answer.coordinator.signing)
        self.close()
        self.connect()

    def take_part(self, lease: pb.Lease) -> int:
        """Do a whole round."""
        self.receive(lease)
        return self.send(lease, *self.seal_update(lease))


Kind = TypeVar("Kind", bound=Device)


def enrol(
    invite_file: Path, folder: Path, *, version: int = PROTOCOL_VERSION, token: bytes | None = None
) -> Device:
    """Enrol with an invite; the answer becomes a device."""
    return enrol_as(Device, invite_file, folder, version=version, token=token)


def enrol_as(
    kind: type[Kind],
    invite_file: Path,
    folder: Path,
    *,
    version: int = PROTOCOL_VERSION,
    token: bytes | None = None,
) -> Kind:
    """Enrol a device of another kind."""
    invite = read_invite(invite_file)
    requests = Identity.create_requests(folder, "device")
    request = pb.EnrolRequest(
        protocol_version=version,
        token=bytes.fromhex(invite.token) if token is None else token,
        signing_requests=_as_message(requests),
    )
    credentials = grpc.ssl_channel_credentials(certificate_pem(invite.ca_certificate))
    with grpc.secure_channel(invite.enrolment_address, credentials) as channel:
        answer = pb_grpc.EnrolmentStub(channel).Enrol(request, timeout=TIMEOUT_S)
    return kind(folder, invite, answer)


def _as_message(requests: SigningRequests) -> pb.SigningRequests:
    return pb.SigningRequests(
        tls=requests.tls, wrapping=requests.wrapping, signing=requests.signing
    )


def install(folder: Path, invite: Invite, given: pb.Certificates) -> Identity:
    certificates = Certificates(given.tls, given.wrapping, given.signing)
    return Identity.install(
        folder, certificates, ca=invite.ca_certificate, role="device", now=time.time()
    )


def next_lease(orders: Orders) -> pb.Lease:
    """Return the next lease on a stream, passing over leases that ended."""
    for order in orders:
        if order.HasField("lease"):
            return order.lease
        assert order.HasField("lease_ended"), order
    raise AssertionError("the stream ended without a lease")


def wait_finished(orders: Orders) -> None:
    """Read the stream until the coordinator says that the run is over."""
    for order in orders:
        if order.HasField("retry_after"):
            assert order.retry_after.reason == "finished"
            return
    raise AssertionError("the stream ended before the run")


def plan_of(lease: pb.Lease) -> Plan:
    return decode_plan(lease.plan)
