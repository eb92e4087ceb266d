"""One job of a training process, with everything it needs, for tests of what becomes of it."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from edge_client.child.work import do_job
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, Enrolment
from edge_client.jobs.job import Failed, Job
from edge_client.owner.starting_floor import write_starting_floor
from models.networks.flat_parameters import initial_parameters
from models.plan.plan import Plan
from models.plan.signed_plan import plan_digest
from models.settings.model import schema_of
from models.text.vocabulary import shipped_vocabulary
from models.vector.codec import encode
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from privacy.sealing.envelope import NO_PLAN, Direction, MessageContext, seal
from tests.edge_client.stand_ins import shipped_plan
from tests.edge_client.training_plan import MODEL
from tests.privacy.conftest import RUN, enrol

SCHEMA = schema_of(MODEL)
PARAMETERS = initial_parameters(MODEL, 1)
NONCE = bytes(range(16))
DEADLINE_MS = 60_000
# Words that stand first in the shipped list; the last two of ten sentences are held out.
SENTENCES = [*["the to and", "and the to", "to the and the", "to and"] * 2, "the and to", "and to"]


@dataclass(frozen=True)
class Enrolled:
    """Hold a device's folder as enrolment leaves it, the coordinator and who certified both."""

    device: Path
    coordinator: Identity
    authority: CertificateAuthority


def enrol_device(root: Path) -> Enrolled:
    """Enrol a device as a federation does."""
    now = time.time()
    authority = CertificateAuthority.create(root / "authority", RUN.hex(), now=now)
    coordinator = enrol(authority, root / "coordinator", "coordinator", "coordinator", now=now)
    folder = DeviceFolder(root / "device")
    folder.create()
    enrol(authority, folder.identity, "device-0001", "device", now=now)
    given = coordinator.certificates
    folder.save_coordinator(CoordinatorKeys(**given._asdict()))
    folder.save(
        Enrolment(
            client_name="device-0001",
            run=RUN.hex(),
            device_address="localhost:1",
            ca_certificate=authority.certificate,
        )
    )
    return Enrolled(folder.path, coordinator, authority)


class Scene:
    """Hold one job that nothing is wrong with, until a test changes it."""

    def __init__(self, folder: Path, enrolled: Enrolled) -> None:
        self.coordinator = enrolled.coordinator
        self.device = folder / "device"
        shutil.copytree(enrolled.device, self.device)
        self.data = folder / "text"
        self.data.mkdir()
        (self.data / "messages.txt").write_text("\n".join(SENTENCES))
        self.model = folder / "model.sealed"
        self.update = folder / "update.sealed"
        self.plan = msgspec.structs.replace(shipped_plan(), run=RUN.hex())
        self.asked = self.plan
        write_starting_floor(self.device / "floor.toml", accepts_no_guarantee=True)
        self.seal_model()

    def seal_model(self, base: bytes = bytes(32)) -> None:
        """Seal the round's model to the device."""
        recipient = Identity.load(self.device / "identity").wrapping.certified
        sealed = seal(
            encode(SCHEMA, PARAMETERS.numpy()),
            self.context(Direction.DOWNLINK, base),
            sender=self.coordinator,
            recipient=recipient,
        )
        self.model.write_bytes(b"".join(map(bytes, sealed.views())))

    def context(self, direction: Direction, base: bytes = bytes(32)) -> MessageContext:
        up = direction is Direction.UPLINK
        return MessageContext(
            direction=direction,
            run=RUN,
            round_number=1,
            slot=2 if up else 0,
            lease_nonce=NONCE if up else bytes(16),
            base_sha256=base,
            schema_sha256=SCHEMA.sha256,
            plan_sha256=plan_digest(self.asked.encode()) if up else NO_PLAN,
            deadline_ms=DEADLINE_MS if up else 0,
        )

    def job(self, plan: Plan | None = None, **changes: Any) -> Job:
        self.asked = plan or self.plan
        job = Job(
            device_folder=str(self.device),
            plan=self.asked.encode(),
            client_name="device-0001",
            round_number=1,
            slot=2,
            lease_nonce=NONCE,
            base_sha256=bytes(32),
            sealed_model=str(self.model),
            sealed_update=str(self.update),
            deadline_ms=DEADLINE_MS,
            data=str(self.data),
            device="cpu",
        )
        return msgspec.structs.replace(job, **changes)

    def failure(self, plan: Plan | None = None, **changes: str) -> Failed:
        outcome = do_job(self.job(plan, **changes))
        assert isinstance(outcome, Failed)
        assert not self.update.exists()
        return outcome


def examples(sentences: list[str]) -> torch.Tensor:
    words = shipped_vocabulary(MODEL.vocabulary_size)
    stream = words.token_stream([sentence.split() for sentence in sentences])
    return torch.tensor(stream, dtype=torch.int64)
