"""Hold what every device of one attempt gets and must send back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from models.compression.update_format import update_format
from models.masked.layout import masked_layout
from models.plan.plan import Plan, upload_schema
from models.plan.signed_plan import plan_digest
from models.vector.base_digest import base_digest
from privacy.identities.certificates import Certificates
from privacy.sealing.envelope import Direction, MessageContext, sealed_bytes
from protos import federation_pb2 as pb
from protos.version import VERSION
from server.downlink.generated_parts import GeneratedParts
from server.downlink.sealed_once import Downlink
from server.machine.answers import Lease


@dataclass(frozen=True)
class SealedHypernetwork:
    """The hypernetwork for devices that fit an embedding, and its flat parameters' SHA-256."""

    downlink: Downlink
    sha256: bytes


@dataclass(frozen=True, kw_only=True)
class RoundInHand:
    """One attempt of one round, as devices see it; rounds count from 1, attempts from 0.

    Attributes:
        base_sha256: Digest of the shared parameters that the round starts from.
        opened_at: When it was opened, seconds since 1970 UTC.
        deadline_ms: When it closes, milliseconds since 1970 UTC; the same after a restart.
        coordinator: Certificates of the keys that sign the parameters and open updates.
        generated: The parts generated and sealed for each device alone, if any.
        hypernetwork: The hypernetwork to fit an embedding with; only under a plan of that kind.
        plan_signature: Tells every device of the attempt that the plan is the coordinator's.
        moved: The downlink for a device that holds an earlier release, by that one's digest.
        helper_certificate: The helper's wrapping certificate, DER, under a plan of masked updates.
    """

    plan: Plan
    round_number: int
    attempt: int
    base_sha256: bytes
    opened_at: float
    deadline_ms: int
    downlink: Downlink
    coordinator: Certificates
    plan_signature: bytes
    generated: GeneratedParts | None = None
    hypernetwork: SealedHypernetwork | None = None
    moved: Mapping[bytes, Downlink] = field(default_factory=dict)
    helper_certificate: bytes = b""

    @cached_property
    def _encoded_plan(self) -> bytes:
        return self.plan.encode()

    @cached_property
    def _payload_sizes(self) -> tuple[int, int]:
        """Return the sizes of the smallest and of the largest payload of this round."""
        if self.plan.sends_masked:
            size = masked_layout(self.plan).payload_bytes
            return size, size
        travels_as = update_format(self.plan, self.round_number)
        return travels_as.least_bytes, travels_as.payload_bytes

    @property
    def upload_bytes(self) -> int:
        """Size of every sealed update of this round; where it varies, of the largest."""
        return sealed_bytes(max(self._payload_sizes))

    def check_upload_size(self, total_bytes: int) -> None:
        """Check the announced size of a sealed update.

        Raises:
            ValueError: If no update of this round has it.
        """
        least, largest = (sealed_bytes(size) for size in self._payload_sizes)
        allowed = str(largest) if least == largest else f"{least} to {largest}"
        if not least <= total_bytes <= largest:
            raise ValueError(f"total_bytes must be {allowed}, got {total_bytes}")

    def part(self, request: pb.FetchModelRequest) -> Downlink | GeneratedParts | None:
        """Return the part of the model that a device asks for; None where there is none such."""
        match request.part:
            case pb.MODEL_PART_SHARED if request.base_sha256:
                return self.moved.get(request.base_sha256)
            case pb.MODEL_PART_SHARED:
                return self.downlink
            case pb.MODEL_PART_GENERATED:
                return self.generated
            case pb.MODEL_PART_HYPERNETWORK if self.hypernetwork is not None:
                return self.hypernetwork.downlink
        return None

    def work_order(self, lease: Lease, now: float) -> pb.WorkOrder:
        """Return the order that gives a device its lease."""
        return pb.WorkOrder(
            lease=pb.Lease(
                software_version=VERSION,
                nonce=lease.nonce,
                round_number=self.round_number,
                slot=lease.slot,
                remaining_ms=max(0, round((lease.deadline - now) * 1000)),
                plan=self._encoded_plan,
                plan_signature=self.plan_signature,
                base_sha256=self.base_sha256,
                upload_bytes=self.upload_bytes,
                download_bytes=self.downlink.total_bytes,
                attempt=self.attempt,
                deadline_ms=self.deadline_ms,
                coordinator=pb.Certificates(**self.coordinator._asdict()),
                generated_bytes=0 if self.generated is None else self.generated.total_bytes,
                hypernetwork_bytes=(
                    0 if self.hypernetwork is None else self.hypernetwork.downlink.total_bytes
                ),
                moved=[
                    pb.MovedModel(base_sha256=base, download_bytes=downlink.total_bytes)
                    for base, downlink in self.moved.items()
                ],
                helper_certificate=self.helper_certificate,
            )
        )

    def uplink_context(self, client: str, slot: int, nonce: bytes) -> MessageContext:
        """Return what the sealed update of a lease must belong to.

        Blocks if the device's generated parameters, whose digest is in it, must be made first.
        """
        base = self.base_sha256
        if self.generated is not None:
            base = self.generated.base_of(client)
        elif self.hypernetwork is not None:
            base = base_digest(base, self.hypernetwork.sha256)
        return MessageContext(
            direction=Direction.UPLINK,
            run=bytes.fromhex(self.plan.run),
            round_number=self.round_number,
            slot=slot,
            lease_nonce=nonce,
            base_sha256=base,
            schema_sha256=upload_schema(self.plan).sha256,
            plan_sha256=plan_digest(self._encoded_plan),
            deadline_ms=self.deadline_ms,
        )
