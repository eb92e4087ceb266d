"""Readers of a device: its folder, its owner's files, and what agent and child tell each other."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import torch
from google.protobuf.message import DecodeError

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.child.optimiser_store import OptimiserStateError, read_optimiser_state
from edge_client.child.own_text import OwnText
from edge_client.datasets.text_set import DatasetError
from edge_client.folder.held_release import HeldRelease, HeldReleaseError
from edge_client.folder.layout import CoordinatorKeys, DeviceFolder, DeviceFolderError, Enrolment
from edge_client.folder.outbox import KeptUpdate, Outbox
from edge_client.jobs.job import Job, Trained, decode_job, decode_outcome, encode
from edge_client.owner.example_ledger import ExampleLedgerError, ExampleSpending, read_spending
from edge_client.owner.floor import FloorError, read_floor
from edge_client.owner.settings import (
    STARTING_SETTINGS,
    ClientSettingsError,
    read_client_settings,
)
from edge_client.owner.starting_floor import write_starting_floor
from edge_client.owner.traffic import Day, Traffic
from edge_client.owner.typed_text import LocalText, TextSettings
from edge_client.personalisation.state import (
    PersonalState,
    PersonalStateError,
    StateLayout,
    read_state,
    write_state,
)
from edge_client.wire.transport import chunk_data
from models.vector.schema import Role, Schema, TensorSpec
from protos import federation_pb2 as wire
from tests.edge_client.training_plan import make_plan
from tests.fuzz.parties import RUN, parties
from tests.fuzz.saved import saved_arrays
from tests.fuzz.target import Prepared, Target, in_new_folders, of_bytes, of_file

_NOW = 1_800_000_000.0
_TEXT = b'{"text":"good morning","time":1799999999.0}\n{"text":"hello","incognito":true}\n'
_PERSONAL = TensorSpec(name="own", shape=(3,), layer="own", role=Role.PERSONAL)


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    yield from _owners_files()
    yield from _text()
    yield from _folder()
    yield from _messages()
    job = Job(
        device_folder="/device",
        plan=b"{}",
        client_name="device-0001",
        round_number=1,
        slot=0,
        lease_nonce=bytes(16),
        base_sha256=bytes(32),
        sealed_model="/device/work/model",
        sealed_update="/device/outbox/update.sealed",
        deadline_ms=1,
        data="/device/text.jsonl",
        device="cpu",
    )
    refused = (msgspec.DecodeError,)
    yield Target("device/job", refused, of_bytes(decode_job, encode(job)), ("json",))
    outcome = encode(Trained(example_count=1, message_id=bytes(16)))
    yield Target("device/outcome", refused, of_bytes(decode_outcome, outcome), ("json",))


def _messages() -> Iterator[Target]:
    yield Target("device/lease", (DecodeError, PlanRefusedError), _leases, ("json",))
    piece = wire.ModelChunk(data=b"model").SerializeToString()
    yield Target("device/model-piece", (DecodeError,), of_bytes(chunk_data, piece), ("text",))


def _owners_files() -> Iterator[Target]:
    yield Target("device/floor.toml", (FloorError,), _floors, ("toml",))
    settings = of_file(read_client_settings, STARTING_SETTINGS.encode())
    yield Target("device/client.toml", (ClientSettingsError,), settings, ("toml",))
    spending = msgspec.json.encode(ExampleSpending(round_count=2, epsilon=0.5, delta=1e-6))
    ledger = of_file(read_spending, spending)
    yield Target("device/example-ledger", (ExampleLedgerError,), ledger, ("json", "text"))
    day = msgspec.json.encode(Day(day=int(_NOW // 86_400), bytes_down=5, bytes_up=7))
    yield Target("device/traffic", (), of_file(_traffic, day), ("json", "text"))


def _text() -> Iterator[Target]:
    refused = (DatasetError,)
    kept = of_file(_kept_text, _TEXT, name="text.jsonl")
    yield Target("device/kept-text", refused, kept, ("json", "text"))
    own = of_file(_own_text, b"good morning to you\nhello\n", name="text.txt")
    yield Target("device/own-text", refused, own, ("text",))


def _folder() -> Iterator[Target]:
    refused = (DeviceFolderError,)
    yield Target("device/enrolment", refused, _enrolment, ("json", "text"))
    yield Target("device/coordinator", refused, _coordinator, ("json", "text"))
    travel = _in_device("travel.txt", lambda device: device.travel())
    yield Target("device/travel", refused, travel(b"two kilobytes"), ("text",))
    plan = _in_device("plan.json", lambda device: device.plan())
    yield Target("device/kept-plan", refused, plan(b"{}"), ("json",))
    signed = _in_device("signed_plan.json", lambda device: device.signed_plan())
    yield Target("device/kept-signed-plan", refused, signed(b"{}"), ("json", "text"))
    update = KeptUpdate(
        lease_nonce=bytes(16), deadline_ms=1, base_sha256=bytes(32), message_id=bytes(16)
    )
    yield Target("device/outbox", (), _outbox(msgspec.json.encode(update)), ("json", "text"))
    held = bytes(np.arange(4, dtype="<f4"))
    yield Target("device/held-release", (HeldReleaseError,), _held(held))
    yield Target("device/personal-state", (PersonalStateError,), _personal_state)
    momentum = saved_arrays(momentum=np.zeros(3, np.float32))
    yield Target(
        "device/optimiser-state",
        (OptimiserStateError,),
        of_file(read_optimiser_state, momentum, name="state.npz"),
        ("npz", "zip"),
    )


def _leases(folder: Path) -> Prepared:
    write_starting_floor(folder / "floor.toml", accepts_no_guarantee=True)
    floor, traffic = read_floor(folder / "floor.toml"), Traffic(folder / "traffic.json")
    plan = msgspec.structs.replace(make_plan(), quorum=20, cohort_size=20)
    lease = wire.Lease(plan=plan.encode(), nonce=bytes(16), round_number=1)
    lease.download_bytes = lease.upload_bytes = 1 << 16

    def read(content: bytes) -> object:
        return accept_plan(wire.Lease.FromString(content), floor, traffic)

    return Prepared(read, [lease.SerializeToString()])


def _floors(folder: Path) -> Prepared:
    path = folder / "starting.toml"
    write_starting_floor(path)
    return of_file(read_floor, path.read_bytes())(folder)


def _traffic(path: Path) -> None:
    counted = Traffic(path, clock=lambda: _NOW)
    counted.add(bytes_down=1)


def _kept_text(path: Path) -> None:
    text = LocalText(path, TextSettings(retention_days=30, largest_bytes=1 << 20))
    text.read(now=_NOW)
    text.tidy(now=_NOW)


def _own_text(path: Path) -> None:
    OwnText.read(path, TextSettings(), now=_NOW)


def _in_device(
    name: str, read: Callable[[DeviceFolder], object]
) -> Callable[[bytes], Callable[[Path], Prepared]]:
    def read_there(path: Path) -> object:
        return read(DeviceFolder(path.parent))

    return lambda seed: of_file(read_there, seed, name=name)


def _enrolment(folder: Path) -> Prepared:
    enrolment = Enrolment(
        client_name="device-0001",
        run=RUN,
        device_address="127.0.0.1:1",
        ca_certificate=parties().authority.certificate,
        other_device_addresses=("[::1]:1", "b.test:7441"),
    )
    prepare = _in_device("enrolment.json", lambda device: device.enrolment())
    return prepare(msgspec.json.encode(enrolment))(folder)


def _coordinator(folder: Path) -> Prepared:
    known = parties().coordinator.certificates
    keys = CoordinatorKeys(wrapping=known.wrapping, signing=known.signing)
    prepare = _in_device("coordinator.json", lambda device: device.coordinator())
    return prepare(msgspec.json.encode(keys))(folder)


def _outbox(seed: bytes) -> Callable[[Path], Prepared]:
    return of_file(lambda path: Outbox(path.parent).kept(), seed, name="update.json")


def _held(seed: bytes) -> Callable[[Path], Prepared]:
    sha256 = hashlib.sha256(seed).digest()

    def read(folder: Path, content: bytes) -> object:
        held = HeldRelease(folder / "held")
        held.keep(sha256, content)
        return held.read(sha256)

    return lambda folder: Prepared(in_new_folders(read, folder), [seed])


def _personal_state(folder: Path) -> Prepared:
    layout = StateLayout.of(Schema((_PERSONAL,)), [TensorSpec(name="e", shape=(2,), layer="e")])
    path = folder / "state"
    write_state(path, layout, PersonalState(torch.zeros(3), {"e": torch.ones(2)}))
    return of_file(lambda kept: read_state(kept, layout), path.read_bytes())(folder)
