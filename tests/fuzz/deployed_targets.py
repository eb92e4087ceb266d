"""Readers of what a device, a coordinator and a server keep, and are set up by."""

import io
import tarfile
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from edge_client.agent.acceptance import PlanRefusedError, accept_plan
from edge_client.folder.layout import DeviceFolder, DeviceFolderError
from edge_client.folder.outbox import KeptUpdate
from edge_client.owner.example_ledger import ExampleLedgerError, ExampleSpending, read_spending
from edge_client.owner.floor import FloorError, read_floor, write_starting_floor
from edge_client.owner.settings import STARTING_SETTINGS, ClientSettingsError, read_client_settings
from edge_client.owner.traffic import Traffic
from edge_client.wire.transport import chunk_data
from export.bundles.files import open_files
from export.bundles.manifest import Manifest
from export.bundles.manifest_entries import BundleError
from export.people.personal_file import kind_of
from export.runtime.personal_cache import CacheError, PersonalCache
from export.runtime.strip import read_blocklist
from export.serve.folder.folder import ServingError, ServingFolder
from export.serve.folder.settings import STARTING_SETTINGS as SERVE_SETTINGS
from export.serve.folder.settings import read_settings
from export.serve.folder.tokens import read_tokens
from export.serve.folder.versions import read_versions
from protos import federation_pb2 as wire
from server.config.federation import ConfigError, preset_text, read_config
from server.devices.upload_piece import read_piece
from server.operating.backup import BackupError, BackupManifest, restore_backup
from server.records.folder import ServerFolder
from server.releases.metrics_log import MetricsLog
from simulation.config.simulation import config_from, read_tables
from simulation.config.simulation import preset_text as simulated_preset
from simulation.figures.metrics import MetricsError, read_metrics
from tests.fuzz.hostile import zipped
from tests.fuzz.target import Prepared, Target, in_new_folders, of_bytes, of_file
from tests.models.plan.test_plan import PLAN


def _lease(folder: Path) -> Prepared:
    write_starting_floor(folder / "floor.toml", accepts_no_guarantee=True)
    floor, traffic = read_floor(folder / "floor.toml"), Traffic(folder / "traffic.json")
    seed = wire.Lease(plan=PLAN.encode(), nonce=bytes(16), round_number=1).SerializeToString()
    return Prepared(
        lambda content: accept_plan(wire.Lease.FromString(content), floor, traffic), (seed,)
    )


def _floor(folder: Path) -> Prepared:
    write_starting_floor(folder / "start.toml")
    return of_file(read_floor, (folder / "start.toml").read_bytes())(folder)


def _enrolment(path: Path) -> None:
    DeviceFolder(path.parent).enrolment()


def _coordinator(path: Path) -> None:
    DeviceFolder(path.parent).coordinator()


def _travel(path: Path) -> None:
    DeviceFolder(path.parent).travel()


def _outbox(folder: Path) -> Prepared:
    device = DeviceFolder(folder)
    device.outbox().sealed_update.write_bytes(b"sealed")
    kept = KeptUpdate(lease_nonce=bytes(16), deadline_ms=1, base_sha256=b"", message_id=b"")
    prepared = of_file(
        lambda _: device.outbox().kept(), msgspec.json.encode(kept), name="update.json"
    )
    return prepared(folder / "outbox")


def _traffic(path: Path) -> None:
    assert Traffic(path, clock=lambda: 0.0).today.day == 0


def _backup(folder: Path) -> Prepared:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        manifest = msgspec.json.encode(
            BackupManifest(run="ab" * 16, created_at=1.0, last_round=None, best_round=None)
        )
        for name, content in (("backup.json", manifest), ("releases/1/plan.json", b"{}")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

    def read(place: Path, content: bytes) -> None:
        (place / "backup.tar").write_bytes(content)
        restore_backup(place / "backup.tar", ServerFolder(place / "root"))

    return Prepared(in_new_folders(read, folder), (packed.getvalue(),))


def _serving(path: Path) -> ServingFolder:
    return ServingFolder(path.parent)


def _archive(path: Path) -> None:
    names = ("manifest.json", "model.onnx")
    files = open_files(path, names)
    for name in names:
        files.read(name, limit_bytes=1 << 20)


_MANIFEST = (Path(__file__).parent / "manifest.json").read_bytes()
_DEVICE = (DeviceFolderError,)

DEPLOYED = (
    Target("lease", (DecodeError, PlanRefusedError), _lease, ("json",)),
    Target("upload-piece", (DecodeError,), of_bytes(read_piece, b"\n\x03abc"), ("text",)),
    Target("model-piece", (DecodeError,), of_bytes(chunk_data, b"\n\x03abc"), ("text",)),
    Target("floor", (FloorError,), _floor, ("toml",)),
    Target(
        "client-settings",
        (ClientSettingsError,),
        of_file(read_client_settings, STARTING_SETTINGS.encode()),
        ("toml",),
    ),
    Target(
        "enrolment",
        _DEVICE,
        of_file(
            _enrolment,
            b'{"client_name":"a","run":"b","device_address":"c","ca_certificate":"ZA=="}',
            name="enrolment.json",
        ),
        ("json",),
    ),
    Target(
        "coordinator-keys",
        _DEVICE,
        of_file(_coordinator, b'{"wrapping":"YQ==","signing":"Yg=="}', name="coordinator.json"),
        ("json",),
    ),
    Target("travel", (), of_file(_travel, b"5.6 MB", name="travel.txt"), ("text",)),
    Target("outbox", (), _outbox, ("json",)),
    Target("traffic", (), of_file(_traffic, b'{"day":0,"bytes_down":1,"bytes_up":2}'), ("json",)),
    Target(
        "example-ledger",
        (ExampleLedgerError,),
        of_file(read_spending, msgspec.json.encode(ExampleSpending(round_count=1))),
        ("json",),
    ),
    Target(
        "federation",
        (ConfigError,),
        of_file(read_config, preset_text("keyboard").encode()),
        ("toml",),
    ),
    Target(
        "simulation",
        (ConfigError,),
        of_file(
            lambda path: config_from(read_tables(str(path)), "input"),
            simulated_preset("keyboard-irc").encode(),
            name="input.toml",
        ),
        ("toml",),
    ),
    Target(
        "metrics-log",
        (),
        of_file(lambda path: MetricsLog(path).complete(()), b'{"round":1}\n'),
        ("json",),
    ),
    Target(
        "run-metrics",
        (MetricsError,),
        of_file(lambda path: read_metrics(path.parent), b'{"round":1}\n', name="metrics.jsonl"),
        ("json",),
    ),
    Target("backup", (BackupError,), _backup, ("json", "text")),
    Target(
        "serve-settings",
        (ServingError,),
        of_file(read_settings, SERVE_SETTINGS.format(accept_unsigned="true").encode()),
        ("toml",),
    ),
    Target(
        "serve-tokens",
        (ServingError,),
        of_file(lambda path: read_tokens(_serving(path)), b'{"clients":{}}', name="tokens.json"),
        ("json",),
    ),
    Target(
        "serve-versions",
        (ServingError,),
        of_file(lambda path: read_versions(_serving(path)), b"{}", name="versions.json"),
        ("json",),
    ),
    Target("manifest", (BundleError,), of_bytes(Manifest.decode, _MANIFEST), ("json",)),
    Target(
        "bundle-kind",
        (BundleError,),
        of_file(kind_of, zipped({"manifest.json": _MANIFEST})),
        ("zip",),
    ),
    Target(
        "bundle-archive",
        (BundleError,),
        of_file(_archive, zipped({"manifest.json": _MANIFEST, "model.onnx": b"graph"})),
        ("zip",),
    ),
    Target(
        "personal-cache",
        (CacheError,),
        of_bytes(PersonalCache.from_bytes, b'{"weights":{"sea":1.5}}'),
        ("json",),
    ),
    Target("blocklist", (ValueError,), of_file(read_blocklist, b"sea # a word\n"), ("text",)),
)
