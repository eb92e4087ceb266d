"""Readers of a coordinator: its settings, its folder, archives of it, and devices' messages."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from models.plan.plan import download_schema, plan_schema
from models.plan.release_record import PERSONALISATION_FILE, ReleaseError
from models.text.vocabulary import Vocabulary
from models.vector.schema import Role
from protos import federation_pb2, keyboard_pb2
from server.config.federation import ConfigError, read_config
from server.devices.upload_piece import read_piece
from server.operating.backup import BackupError, BackupManifest, restore_backup
from server.personalisation.registry import build_server_half
from server.records.folder import ServerFolder
from server.releases.files import read_release
from server.releases.method_state import MethodState, MethodStateError
from server.releases.metrics_log import MetricsLog
from server.releases.public_evaluation import EvaluationTextError, PublicText
from tests.export.conftest import WORDS, plan_of
from tests.export.people_scene import FEDTP, PERSONAL_SETTINGS
from tests.fuzz.parties import RUN
from tests.fuzz.readers.export import scene
from tests.fuzz.saved import tarred
from tests.fuzz.target import Prepared, Target, in_new_folders, of_bytes, of_file

_PRESETS = Path("server/presets")


def targets() -> Iterator[Target]:
    """Yield this package's targets."""
    presets = [path.read_bytes() for path in sorted(_PRESETS.glob("*.toml"))]
    settings = of_file(read_config, *presets, name="federation.toml")
    yield Target("server/federation.toml", (ConfigError,), settings, ("toml",))
    manifest = BackupManifest(run=RUN, created_at=1.0, last_round=None, best_round=None)
    archive = tarred(
        {"backup.json": msgspec.json.encode(manifest), "store.sqlite": b"-", "releases/1/a": b"-"}
    )
    yield Target(
        "server/backup",
        (BackupError,),
        lambda folder: Prepared(in_new_folders(_restored, folder), [archive]),
    )
    for name in ("release.json", "plan.json", "parameters.bin"):
        yield Target(f"server/release/{name}", (ReleaseError,), _release(name))
    log = b'{"round":1,"perplexity":12.5}\n{"round":2}\n'
    lines = of_file(lambda path: MetricsLog(path).complete([]), log)
    yield Target("server/metrics-log", (), lines, ("json", "text"))
    read_public = of_file(_public, b"good morning to you\nsee you\n")
    yield Target("server/public-text", (EvaluationTextError,), read_public, ("text",))
    yield Target("server/method-state", (MethodStateError,), _method_state)
    yield from _messages()


def _messages() -> Iterator[Target]:
    refused = (DecodeError,)
    piece = federation_pb2.UploadChunk(data=b"update", lease_nonce=bytes(16), offset=3)
    pieces = (piece.SerializeToString(), federation_pb2.UploadChunk(data=b"a").SerializeToString())
    yield Target("server/upload-piece", refused, of_bytes(read_piece, *pieces))
    asked = federation_pb2.CheckInRequest(model_families=["gru_lm"]).SerializeToString()
    yield Target(
        "server/check-in", refused, of_bytes(federation_pb2.CheckInRequest.FromString, asked)
    )
    text = keyboard_pb2.NextRequest(text="see you").SerializeToString()
    yield Target("server/next-word", refused, of_bytes(keyboard_pb2.NextRequest.FromString, text))


def _public(path: Path) -> object:
    return PublicText(path, Vocabulary(WORDS))


def _method_state(_folder: Path) -> Prepared:
    plan = plan_of(PERSONAL_SETTINGS, Vocabulary(WORDS), personalisation=FEDTP)
    half = build_server_half(
        plan.personalisation, download_schema(plan), model=plan.model, run_seed=plan.seed
    )
    state = MethodState(half, plan_schema(plan).with_roles(Role.GENERATED))
    kept = scene().folder / "releases" / "000001" / PERSONALISATION_FILE
    return Prepared(state.restore, [kept.read_bytes()])


def _restored(folder: Path, content: bytes) -> object:
    archive = folder / "archive.tar"
    archive.write_bytes(content)
    return restore_backup(archive, ServerFolder(folder / "restored"))


def _release(name: str) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        release = folder / "release"
        shutil.copytree(scene().folder / "release", release)
        path = release / name

        def read(content: bytes) -> object:
            path.write_bytes(content)
            return read_release(release)

        return Prepared(read, [path.read_bytes()])

    return prepare
