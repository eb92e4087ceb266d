"""A tiny model, its release on disk, its bundle, and a federation that can sign them."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from export.bundles.keyboard_bundle import AnyBundle, Bundle, load_bundle
from export.bundles.manifest import BundleManifest
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle
from export.parity.checked_graph import flat, recover_held
from export.releases.release import read_release
from export.runtime.word_graph import NextWordGraph
from models.plan.plan import (
    Plan,
    TrainingSettings,
    VocabularySettings,
    plan_schema,
    released_schema,
)
from models.plan.release_record import ReleaseRecord, digests_of
from models.settings.model import GruLmSettings, ModelSettings, schema_of
from models.settings.personalisation import GlobalSettings, PersonalisationSettings
from models.text.vocabulary import Vocabulary
from models.vector.codec import FlatVector, encode
from privacy.identities.authority import CertificateAuthority
from privacy.identities.party import Identity
from privacy.identities.signatures import Purpose
from privacy.noise.settings import NoNoise
from server.records.folder import ServerFolder

RUN = "0123456789abcdef" * 2
NOW = 1_800_000_000.0
WORDS = (
    "<unk>",
    "<eos>",
    "the",
    "then",
    "them",
    "a",
    "and",
    "sea",
    "see",
    "seen",
    "seeing",
    "i",
    "you",
    "we",
    "can't",
    "don't",
    "go",
    "going",
    "café",
)
SETTINGS = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=6)


@dataclass(frozen=True)
class Federation:
    authority: CertificateAuthority
    coordinator: Identity
    folder: Path


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return Vocabulary(WORDS)


@pytest.fixture(scope="session")
def parameters() -> FlatVector:
    return random_parameters(SETTINGS)


@pytest.fixture(scope="session")
def release_folder(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary, parameters: FlatVector
) -> Path:
    """An unsigned release of round 3, as a simulation writes it."""
    folder = tmp_path_factory.mktemp("release")
    write_release(folder, vocabulary, parameters)
    return folder


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory: pytest.TempPathFactory, release_folder: Path) -> Path:
    target = tmp_path_factory.mktemp("bundles") / "keyboard"
    export_bundle(KeyboardKind(["en"]), read_release(release_folder), target)
    return target


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path) -> Bundle:
    return load_bundle(bundle_folder)


@pytest.fixture(scope="session")
def graph(bundle: Bundle) -> NextWordGraph:
    return NextWordGraph(bundle.graph)


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return found_federation(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="session")
def other_federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return found_federation(tmp_path_factory.mktemp("other"))


def held_in(bundle: AnyBundle) -> FlatVector:
    """Return the parameters that a bundle's graphs hold, which are those that it names."""
    manifest: BundleManifest = bundle.manifest
    personal = tuple(manifest.personal_schema.slices)
    return flat(recover_held(manifest, bundle.files, personal=personal), manifest.held_schema)


def found_federation(folder: Path) -> Federation:
    """Make an authority and a coordinator in the places where a coordinator's folder has them."""
    places = ServerFolder(folder)
    authority = CertificateAuthority.create(places.authority, RUN, now=NOW)
    requests = Identity.create_requests(places.identity, "coordinator")
    issued = authority.issue_all(
        requests, name="coordinator", role="coordinator", hostnames=("localhost",), now=NOW
    )
    coordinator = Identity.install(
        places.identity, issued, ca=authority.certificate, role="coordinator", now=NOW
    )
    return Federation(authority, coordinator, folder)


def random_parameters(settings: ModelSettings, seed: int = 0) -> FlatVector:
    """Draw parameters far enough from zero that every word's probability differs."""
    draw = np.random.default_rng(seed).standard_normal(schema_of(settings).element_count)
    return (0.5 * draw).astype(np.float32)


def plan_of(
    settings: ModelSettings,
    vocabulary: Vocabulary,
    *,
    personalisation: PersonalisationSettings | None = None,
    frozen: tuple[str, ...] = (),
) -> Plan:
    plan = Plan(
        run=RUN,
        model=settings,
        schema_sha256="00" * 32,
        vocabulary=VocabularySettings(
            name="test", size=len(vocabulary), sha256=vocabulary.sha256.hex()
        ),
        training=TrainingSettings(learning_rate=1.0, batch_size=1, bptt_steps=5, frozen=frozen),
        personalisation=personalisation or GlobalSettings(),
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


def write_release(
    folder: Path,
    vocabulary: Vocabulary,
    parameters: FlatVector,
    *,
    plan: Plan | None = None,
    signer: Identity | None = None,
    changes: Mapping[str, object] | None = None,
) -> None:
    """Write a release by hand; ``changes`` go into its record, fit or not."""
    folder.mkdir(parents=True, exist_ok=True)
    plan = plan or plan_of(SETTINGS, vocabulary)
    described: dict[str, bytes | memoryview] = {
        "plan.json": plan.encode(),
        "vocabulary.txt": vocabulary.to_bytes(),
    }
    record = ReleaseRecord(
        run=RUN,
        round=3,
        parameters_sha256=hashlib.sha256(parameters.tobytes()).hexdigest(),
        schema_sha256=plan_schema(plan).sha256.hex(),
        previous_sha256="00" * 32,
        metrics={"perplexity": 12.5},
        guarantee="no privacy guarantee",
        files=digests_of(described) if signer else {},
    )
    encoded = msgspec.json.encode(msgspec.to_builtins(record) | dict(changes or {}))
    described |= {
        "parameters.bin": encode(released_schema(plan), parameters),
        "release.json": encoded,
    }
    if signer is not None:
        described["release.sig"] = signer.sign(encoded, purpose=Purpose.RELEASE)
        described["signer.der"] = signer.certificates.signing
    for name, content in described.items():
        (folder / name).write_bytes(content)
