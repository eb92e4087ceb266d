"""Serve leases on a device of one process, and note everything that leaves it.

The lease is served as an agent serves it, the job done as its training process does it, and both
ends seal and open. The network is stood in for: requests are noted as they would be encoded.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.parts.crafted_models import Crafted
from edge_client.agent.device import Device
from edge_client.agent.lease import serve_lease
from edge_client.child.work import do_job
from edge_client.folder.layout import DeviceFolder
from edge_client.jobs.job import Job, Outcome
from edge_client.owner.floor import Floor
from edge_client.owner.traffic import Traffic
from edge_client.wire.transport import Transport
from models.compression.update_format import update_formats
from models.networks.role_vectors import part_of
from models.plan.plan import Plan, plan_schema, released_schema
from models.plan.signed_plan import plan_digest, sign_plan
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector, PayloadHeader
from models.vector.schema import Schema
from privacy.identities.party import Identity
from privacy.noise.secure_gaussian import KEY_BYTES, SystemKeys
from privacy.sealing.envelope import Direction, MessageContext, open_sealed, seal
from protos import federation_pb2 as wire

NONCE = bytes(range(16))
_FLOOR = Floor(
    modes=frozenset({"local", "central"}),
    largest_clipping_norm="any",
    least_cohort=1,
    model_families=frozenset({"gru_lm", "transformer_lm"}),
)


@dataclass
class Wire:
    """All that left the device: names and fields of its requests, and the sealed update's bytes."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    update: bytes = b""


@dataclass(frozen=True)
class Answer:
    """The visible part of one round, and the opened update, if there is one."""

    seen: tuple[object, ...]
    update: FlatVector | None


class AnsweringDevice:
    """One enrolled device, whose text and state are set anew for each person."""

    def __init__(self, folder: DeviceFolder, coordinator: Identity, root: Path) -> None:
        """Take an enrolled device's folder, which has a floor, and the coordinator's keys."""
        self._folder = folder
        self._coordinator = coordinator
        self._device = Identity.load(folder.identity)
        self._data = root / "data"
        self._traffic = Traffic(root / "traffic.json", clock=lambda: 0.0)

    def become(self, text: bytes) -> None:
        """Be another person, who has typed this and took part in nothing."""
        folder = self._folder
        for path in (folder.personal.current.parent, folder.optimiser, folder.word_lists):
            for file in path.glob("*"):
                file.unlink()
        folder.example_ledger.unlink(missing_ok=True)
        folder.outbox().clear()
        folder.empty_work()
        self._data.mkdir(exist_ok=True)
        (self._data / "typed.txt").write_bytes(text)

    def answer(self, crafted: Crafted, *, round_number: int = 1) -> Answer:
        """Serve one round of a crafted plan and model."""
        schema = released_schema(crafted.plan)
        raw = part_of(torch.from_numpy(crafted.raw), plan_schema(crafted.plan), schema).numpy()
        sealed = self._sealed(crafted.plan, schema, raw, round_number)
        lease = wire.Lease(
            nonce=NONCE,
            round_number=round_number,
            plan=crafted.plan.encode(),
            base_sha256=hashlib.sha256(raw.tobytes()).digest(),
            deadline_ms=60_000,
            download_bytes=len(sealed),
        )
        lease.plan_signature = sign_plan(
            lease.plan,
            self._coordinator,
            run=self._folder.enrolment().run,
            round_number=round_number,
            attempt=lease.attempt,
        )
        device = Device(
            folder=self._folder,
            client_name="device-0001",
            data=self._data,
            compute="cpu",
            floor=_FLOOR,
            trainer=_InProcess(),
            traffic=self._traffic,
        )
        noted = Wire()
        asyncio.run(serve_lease(lease, device, _NotingTransport(noted, sealed, crafted.words)))
        keeps = self._folder.personal.current
        seen = (*noted.requests, keeps.exists() and keeps.stat().st_size)
        return Answer(seen, self._opened(crafted.plan, lease, noted.update))

    def _sealed(self, plan: Plan, schema: Schema, raw: FlatVector, round_number: int) -> bytes:
        # As ``models.vector.codec.encode`` without its check: a captured coordinator sends what
        # it likes.
        header = PayloadHeader("a payload", b"SOTTOPAR", 1).encode(schema.sha256)
        context = MessageContext(
            direction=Direction.DOWNLINK,
            run=bytes.fromhex(plan.run),
            round_number=round_number,
            slot=0,
            lease_nonce=bytes(16),
            base_sha256=hashlib.sha256(raw.tobytes()).digest(),
            schema_sha256=schema.sha256,
            deadline_ms=0,
        )
        message = seal(
            memoryview(header + raw.astype("<f4").tobytes()),
            context,
            sender=self._coordinator,
            recipient=self._device.wrapping.certified,
        )
        return b"".join(map(bytes, message.views()))

    def _opened(self, plan: Plan, lease: wire.Lease, sealed: bytes) -> FlatVector | None:
        if not sealed:
            return None
        form = update_formats(plan).of_round(lease.round_number)
        payload = open_sealed(
            [sealed],
            MessageContext(
                direction=Direction.UPLINK,
                run=bytes.fromhex(plan.run),
                round_number=lease.round_number,
                slot=lease.slot,
                lease_nonce=lease.nonce,
                base_sha256=lease.base_sha256,
                schema_sha256=form.schema.sha256,
                plan_sha256=plan_digest(lease.plan),
                deadline_ms=lease.deadline_ms,
            ),
            payload_bytes=form.payload_bytes,
            recipient=self._coordinator,
            sender=self._device.signing.certified,
        )
        return np.array(form.decode(payload))


@contextmanager
def same_noise() -> Iterator[None]:
    """Let every draw follow from its name, and count no epsilon, which follows from no text.

    Whatever then differs between two updates is what the texts made of them.
    """
    draw = lambda keys, label: hashlib.shake_256(label.encode()).digest(KEY_BYTES)  # noqa: E731
    with (
        mock.patch.object(SystemKeys, "draw", draw),
        mock.patch("edge_client.child.work.example_epsilon", lambda events, delta: 0.0),
    ):
        yield


class _InProcess:
    async def run(self, job: Job) -> Outcome:
        return do_job(job)

    async def close(self) -> None:
        """Keep nothing."""


class _NotingTransport(Transport):
    """A transport whose calls end in notes; it answers as a coordinator that takes everything."""

    def __init__(self, noted: Wire, sealed: bytes, words: Vocabulary) -> None:
        self._noted, self._sealed, self._words = noted, sealed, words
        # The calls that are made, and no others.
        self._stub = self  # type: ignore[assignment]
        self._fetch_model = self._model  # type: ignore[assignment]
        self._upload = self._take  # type: ignore[assignment]

    async def OpenUpload(self, request: Any, timeout: float) -> Any:  # noqa: N802
        self._note(request)
        return wire.OpenUploadResponse()

    async def CommitUpload(self, request: Any, timeout: float) -> None:  # noqa: N802
        self._note(request)

    async def RefusePlan(self, request: Any, timeout: float) -> None:  # noqa: N802
        self._note(request)

    async def SendEmbedding(self, request: Any, timeout: float) -> None:  # noqa: N802
        self._note(request)

    async def ReportEvaluation(self, request: Any, timeout: float) -> None:  # noqa: N802
        self._note(request)

    async def FetchVocabulary(self, request: Any) -> AsyncIterator[Any]:  # noqa: N802
        self._note(request)
        yield wire.VocabularyChunk(data=self._words.to_bytes())

    async def _model(self, request: Any) -> AsyncIterator[bytes]:
        self._note(request)
        yield self._sealed

    async def _take(self, chunks: Iterator[bytes]) -> None:
        pieces = [wire.UploadChunk.FromString(chunk).data for chunk in chunks]
        self._noted.update = b"".join(pieces)
        self._noted.requests.append(("UploadChunk", str(len(self._noted.update))))

    def _note(self, request: Any) -> None:
        # A message's id is random, and drawn for any text.
        if hasattr(request, "message_id"):
            request.message_id = bytes(len(request.message_id))
        self._noted.requests.append((type(request).__name__, str(request)))
