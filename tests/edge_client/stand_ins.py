"""A coordinator and a training process that do as they are told, for tests of the agent."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from functools import cache
from pathlib import Path

import pytest

from edge_client.agent.device import Device
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.jobs.job import Evaluated, Fitted, Job, Outcome, Trained
from edge_client.owner.floor import Floor
from edge_client.owner.traffic import Traffic
from edge_client.wire.refusal import RefusedError, UnreachableError
from edge_client.wire.transport import Transport
from models.plan.plan import Plan, VocabularySettings
from models.plan.signed_plan import sign_plan
from models.settings.model import schema_of
from models.text.vocabulary import SHIPPED_NAME, shipped_vocabulary
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from protos import federation_pb2 as wire
from tests.edge_client.training_plan import MODEL, make_plan
from tests.key_pool import KeyPool
from tests.privacy.conftest import enrol

RUN = "00" * 16
FLOOR = Floor(
    modes=frozenset({"none"}),
    largest_clipping_norm="any",
    least_cohort=1,
    model_families=frozenset({"gru_lm"}),
)
SEALED_MODEL = b"sealed model"
SEALED_UPDATE = b"sealed update"
MESSAGE_ID = b"message-id-of-16"


class StandInTransport(Transport):
    """Answer every call at once and note it.

    Attributes:
        calls: What was called, with what matters of it.
        fetched: Size of each sealed model that was fetched, and the release that it leads from.
        refusals: Codes that the next calls of a name are refused with, first to last.
        orders: What the coordinator pushes; None ends the stream.
        checked_in: Requests that opened a stream.
        vocabulary: The word list that is served.
        unreachable: How many check-ins fail before one gets through.
        commit_hangs: Whether commits, and embeddings, wait for ``commit_answered``.
        commit_answered: Set, it answers the commits that hang.
    """

    def __init__(self) -> None:  # No channel: nothing here speaks gRPC.
        self.calls: list[tuple[object, ...]] = []
        self.fetched: list[tuple[int, bytes]] = []
        self.refusals: dict[str, list[str]] = {}
        self.orders: asyncio.Queue[wire.WorkOrder | None] = asyncio.Queue()
        self.checked_in: list[wire.CheckInRequest] = []
        self.vocabulary = b""
        self.unreachable = 0
        self.commit_hangs = False
        self.commit_answered = asyncio.Event()

    async def __aexit__(self, *_: object) -> None:
        self.calls.append(("closed",))

    def _note(self, name: str, *what: object) -> None:
        self.calls.append((name, *what))
        if codes := self.refusals.get(name):
            raise RefusedError(codes.pop(0), "as told")

    async def work_orders(
        self, request: wire.CheckInRequest
    ) -> AsyncGenerator[wire.WorkOrder, None]:
        self.checked_in.append(request)
        if self.unreachable:
            self.unreachable -= 1
            raise UnreachableError("unavailable: as told")
        self._note("check_in")
        while (order := await self.orders.get()) is not None:
            yield order

    async def fetch_model(
        self,
        lease: wire.Lease,
        part: wire.ModelPart,
        total_bytes: int,
        target: Path,
        base_sha256: bytes = b"",
    ) -> None:
        self._note("fetch_model")
        self.fetched.append((total_bytes, base_sha256))
        target.write_bytes(SEALED_MODEL)

    async def fetch_vocabulary(self, sha256: bytes) -> bytes:
        self._note("fetch_vocabulary", sha256)
        return self.vocabulary

    async def upload(
        self, nonce: bytes, message_id: bytes, sealed: Path, count: Callable[[int], None]
    ) -> None:
        self._note("upload", nonce, message_id, sealed.read_bytes())
        count(sealed.stat().st_size)

    async def commit(self, nonce: bytes, message_id: bytes, example_count: int) -> None:
        self._note("commit", nonce, message_id, example_count)
        if self.commit_hangs:
            await self.commit_answered.wait()

    async def send_embedding(self, nonce: bytes, sealed: bytes) -> None:
        self._note("send_embedding", nonce, sealed)
        if self.commit_hangs:
            await self.commit_answered.wait()

    async def report(self, nonce: bytes, counts: Evaluated) -> None:
        self._note("report", nonce, counts)

    async def refuse_plan(self, nonce: bytes, code: str) -> None:
        self._note("refuse_plan", nonce, code)

    async def renew(self, requests: wire.SigningRequests) -> wire.RenewCertificatesResponse:
        self._note("renew")
        return wire.RenewCertificatesResponse()

    @property
    def named(self) -> list[object]:
        """What was called, by name."""
        return [name for name, *_ in self.calls]


class StandInTrainer:
    """Give a prepared outcome, or work until cancelled.

    Attributes:
        outcome: What comes of every job; None for work without end.
        jobs: What was asked for.
        stopped: How often work was cancelled.
        closed: Whether it was closed.
    """

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.outcome = outcome
        self.jobs: list[Job] = []
        self.stopped = 0
        self.closed = False

    async def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        if self.outcome is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped += 1
        assert self.outcome is not None
        if isinstance(self.outcome, Trained | Fitted):
            Path(job.sealed_update).write_bytes(SEALED_UPDATE)
        return self.outcome

    async def close(self) -> None:
        self.closed = True


@cache
def stand_in_coordinator() -> tuple[bytes, Identity]:
    """Return an authority's certificate, DER, and the coordinator that it certified."""
    folder, now = Path(tempfile.mkdtemp()), time.time()
    authority = CertificateAuthority.create(folder / "authority", RUN)
    with pytest.MonkeyPatch.context() as patched:
        # Leases are made while tests are collected too, before the fixture that does the same.
        patched.setattr("privacy.identities.party.make_rsa_key", KeyPool("stand-in").next_key)
        coordinator = enrol(authority, folder / "identity", "coordinator", "coordinator", now=now)
    return authority.certificate, coordinator


def sign_lease(lease: wire.Lease, signer: Identity | None = None, *, run: str = RUN) -> wire.Lease:
    """Sign the plan of a lease, in place; None is the coordinator of `make_device`'s devices."""
    lease.plan_signature = sign_plan(
        lease.plan,
        signer or stand_in_coordinator()[1],
        run=run,
        round_number=lease.round_number,
        attempt=lease.attempt,
    )
    return lease


def make_device(folder: Path, trainer: StandInTrainer, floor: Floor = FLOOR) -> Device:
    """Return a device in a fresh folder."""
    device_folder = DeviceFolder(folder)
    device_folder.create()
    (folder / "text").write_text("good morning\n")
    device_folder.empty_work()
    ca_certificate, coordinator = stand_in_coordinator()
    device_folder.save(
        Enrolment(
            client_name="device-0001",
            run=RUN,
            device_address="127.0.0.1:1",
            ca_certificate=ca_certificate,
        )
    )
    keys = coordinator.certificates
    device_folder.save_coordinator(CoordinatorKeys(wrapping=keys.wrapping, signing=keys.signing))
    return Device(
        folder=device_folder,
        client_name="device-0001",
        data=folder / "text",
        compute="cpu",
        floor=floor,
        trainer=trainer,
        traffic=Traffic(folder / "traffic.json", clock=lambda: 0.0),
    )


def shipped_plan(**changes: object) -> Plan:
    """Return a plan whose word list is the shipped one."""
    return _replaced(make_plan(), {"vocabulary": shipped_words(), **changes})


def shipped_words() -> VocabularySettings:
    """Return what a plan says of the shipped list."""
    words = shipped_vocabulary(MODEL.vocabulary_size)
    return VocabularySettings(name=SHIPPED_NAME, size=len(words), sha256=words.sha256.hex())


def _replaced(plan: Plan, changes: dict[str, object]) -> Plan:
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    return Plan(**{**fields, **changes})


def make_lease(
    plan: Plan | bytes | None = None,
    *,
    number: int = 1,
    download_bytes: int = len(SEALED_MODEL),
    upload_bytes: int = len(SEALED_UPDATE),
) -> wire.Lease:
    """Return a signed lease; its nonce is its number, sixteen times."""
    encoded = plan if isinstance(plan, bytes) else (plan or shipped_plan()).encode()
    return sign_lease(
        wire.Lease(
            nonce=bytes([number]) * 16,
            round_number=number,
            plan=encoded,
            base_sha256=bytes([number]) * 32,
            deadline_ms=number * 1000,
            download_bytes=download_bytes,
            upload_bytes=upload_bytes,
        )
    )


PAYLOAD_BYTES = schema_of(MODEL).payload_bytes
