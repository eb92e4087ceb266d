"""Everyone's bundle with one person's file is that person's model, and nobody else's file fits."""

import errno
import os
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from export.bundles.keyboard_bundle import Bundle, load_bundle
from export.bundles.manifest_entries import BundleError, FileDigest
from export.faces.family import ExportError
from export.graphs.registry import exporter_for
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people, export_published
from export.making.released_model import export_bundle, verify_bundle
from export.people import personal_file
from export.people.adapter import Resting, decode_adapter, encode_adapter
from export.people.personal_file import ADAPTER_FILE, load_personal_file, write_personal_file
from export.releases.client_model import client_parameters
from export.releases.release import Release, read_release
from export.runtime.word_graph import NextWordGraph
from models.plan.plan import released_schema
from models.plan.published_part import PublishedPart, PublishedRecord
from models.settings.model import schema_of
from models.settings.personalisation import FedPerSettings
from models.text.vocabulary import Vocabulary
from models.vector.codec import named_tensors
from tests.export.conftest import (
    RUN,
    SETTINGS,
    Federation,
    held_in,
    plan_of,
    random_parameters,
    write_release,
)
from tests.export.people_scene import release_with_people

TOKENS = np.array([[1, 4, 7]])


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Release:
    return release_with_people(tmp_path_factory.mktemp("run"), vocabulary)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Bundle:
    target = tmp_path_factory.mktemp("bundles") / "shared.zip"
    export_bundle(KeyboardKind(), release, target)
    return load_bundle(target)


@pytest.fixture(scope="module")
def graph(shared: Bundle) -> NextWordGraph:
    return NextWordGraph(shared.graph)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    folder = tmp_path_factory.mktemp("people")
    export_people(release, [(name, folder / f"{name}.zip") for name in ("ada", "ben")])
    return folder


def distribution(graph: NextWordGraph) -> np.ndarray:
    found: np.ndarray = graph.step(TOKENS, graph.fresh_state(), k=1).distribution[0]
    return found


def test_a_persons_file_on_everyones_bundle_is_that_persons_whole_model(
    tmp_path: Path, release: Release, shared: Bundle, graph: NextWordGraph, people: Path
) -> None:
    found = {}
    for name in ("ada", "ben"):
        own = load_personal_file(people / f"{name}.zip").on(graph, shared.manifest)
        export_bundle(KeyboardKind(), release, tmp_path / name, client=name)
        whole = verify_bundle(tmp_path / name).bundle
        found[name] = distribution(own)

        assert_allclose(found[name], distribution(NextWordGraph(whole.graph)), atol=1e-6)
        assert_array_equal(held_in(whole), client_parameters(release, name))
        assert (whole.manifest.client, whole.manifest.personal) == (name, None)
    assert np.abs(found["ada"] - found["ben"]).max() > 1e-3


def test_a_file_says_whose_it_is_and_where_it_comes_from(release: Release, people: Path) -> None:
    manifest = load_personal_file(people / "ada.zip").manifest

    assert (manifest.client, manifest.origin, manifest.method) == ("ada", "generated", "fedtp")
    assert (manifest.run, manifest.round_number) == (release.record.run, 1)


@pytest.mark.parametrize(("resting", "tolerance"), [("float16", 2e-3), ("int8", 2e-2)])
def test_smaller_files_move_a_distribution_little(
    tmp_path: Path, release: Release, shared: Bundle, resting: Resting, tolerance: float
) -> None:
    graph = NextWordGraph(shared.graph)
    export_people(release, [("ada", tmp_path / "ada.zip")], resting=resting)
    export_people(release, [("ada", tmp_path / "exact.zip")])

    small = load_personal_file(tmp_path / "ada.zip").on(graph, shared.manifest)

    exact = load_personal_file(tmp_path / "exact.zip").on(graph, shared.manifest)
    difference = np.abs(distribution(small) - distribution(exact)).max()
    assert 0 < difference < tolerance


@pytest.mark.parametrize(
    ("resting", "bytes_each"), [("float32", 4), ("float16", 2), ("int8", 1 + 4 / 64)]
)
def test_an_adapter_is_as_large_as_its_numbers(resting: Resting, bytes_each: float) -> None:
    tensors = {"personal.a": np.ones((192, 64), dtype=np.float32)}

    size = len(encode_adapter(tensors, resting))

    assert 192 * 64 * bytes_each < size < 192 * 64 * bytes_each + 1000


def test_vectors_are_never_rounded() -> None:
    vector = np.array([1 / 3, 1e-9, 1e9], dtype=np.float32)

    for resting in ("float16", "int8"):
        encoded = encode_adapter({"personal.bias": vector}, resting)
        assert_array_equal(
            decode_adapter(encoded, {"personal.bias": (3,)}, resting)["personal.bias"], vector
        )


def test_a_client_that_nobody_knows_gets_no_file(tmp_path: Path, release: Release) -> None:
    with pytest.raises(ExportError, match='no embedding is known of client "eve"'):
        export_people(release, [("eve", tmp_path / "eve.zip")])
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_one_model_for_everyone_has_no_personal_files(
    tmp_path: Path, release_folder: Path
) -> None:
    with pytest.raises(ExportError, match="one model for everyone"):
        export_people(read_release(release_folder), [("ada", tmp_path / "ada.zip")])


def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_people(release, [("ada", tmp_path / "ada.zip")])
    before = (tmp_path / "ada.zip").read_bytes()

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match="is full"):
        export_people(release, [("ben", tmp_path / "ada.zip")])
    monkeypatch.undo()

    assert (tmp_path / "ada.zip").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ada.zip"]


@pytest.mark.parametrize("what", ["run", "method", "schema_sha256"])
def test_a_file_of_another_run_method_or_schema_does_not_fit(
    tmp_path: Path, shared: Bundle, graph: NextWordGraph, people: Path, what: str
) -> None:
    found = load_personal_file(people / "ada.zip")
    foreign = msgspec.structs.replace(found.manifest, **{what: "f" * 32})
    write_personal_file(tmp_path / "foreign.zip", foreign, found.adapter)

    with pytest.raises(BundleError, match=r"of ada's file must be .*, the bundle's, got ffff"):
        load_personal_file(tmp_path / "foreign.zip").on(graph, shared.manifest)


def test_a_whole_model_takes_nobodys_file(people: Path, bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="holds a whole model"):
        load_personal_file(people / "ada.zip").on(NextWordGraph(bundle.graph), bundle.manifest)


@pytest.mark.parametrize(
    ("tensors", "rule"),
    [
        ({}, "must hold personal.a, it does not: it is of another schema"),
        ({"personal.a": np.ones((3, 2), dtype=np.float32)}, r"of shape \(2, 3\), got float32 of"),
        (
            {
                "personal.a": np.ones((2, 3), dtype=np.float32),
                "personal.b": np.ones(1, dtype=np.float32),
            },
            "must hold a person's tensors only",
        ),
        ({"personal.a": np.full((2, 3), np.nan, dtype=np.float32)}, "must be finite"),
    ],
)
def test_an_adapter_with_other_tensors_is_refused(
    tensors: dict[str, np.ndarray], rule: str
) -> None:
    encoded = encode_adapter(tensors, "float32")

    with pytest.raises(BundleError, match=rule):
        decode_adapter(encoded, {"personal.a": (2, 3)}, "float32")


@pytest.mark.parametrize("kept", [0, 4, 40, -100])
def test_a_damaged_adapter_is_refused(
    tmp_path: Path, shared: Bundle, graph: NextWordGraph, people: Path, kept: int
) -> None:
    found = load_personal_file(people / "ada.zip")
    cut = found.adapter[:kept]
    forged = msgspec.structs.replace(found.manifest, files={ADAPTER_FILE: FileDigest.of(cut)})
    write_personal_file(tmp_path / "cut.zip", forged, cut)

    with pytest.raises(BundleError, match="the adapter cannot be read: it is damaged"):
        load_personal_file(tmp_path / "cut.zip").on(graph, shared.manifest)


def test_a_number_that_float16_cannot_hold_is_refused() -> None:
    with pytest.raises(BundleError, match=r"must be below 65,504 for float16"):
        encode_adapter({"personal.a": np.full((2, 2), 1e5, dtype=np.float32)}, "float16")


@pytest.mark.parametrize("name", [ADAPTER_FILE, "manifest.json"])
def test_a_flipped_bit_is_refused(
    tmp_path: Path, federation: Federation, release: Release, name: str
) -> None:
    target = tmp_path / "ada"
    export_people(release, [("ada", target)], signed_with=federation.coordinator)
    content = bytearray((target / name).read_bytes())
    content[-3] ^= 1
    (target / name).write_bytes(content)

    with pytest.raises(BundleError, match=r"SHA-256 of person.onnx_adapter|was not signed"):
        load_personal_file(target)


def test_the_coordinators_signature_is_asked_for(
    tmp_path: Path, federation: Federation, other_federation: Federation, release: Release
) -> None:
    signed, unsigned = tmp_path / "signed.zip", tmp_path / "unsigned.zip"
    export_people(release, [("ada", signed)], signed_with=federation.coordinator)
    export_people(release, [("ada", unsigned)])
    authority = federation.authority.certificate

    found = load_personal_file(signed, authority=authority)

    assert found.signer is not None
    assert found.signer.is_trusted
    with pytest.raises(BundleError, match=r"manifest\.sig must be in the bundle"):
        load_personal_file(unsigned, authority=authority)
    with pytest.raises(BundleError, match="not issued by this federation's authority"):
        load_personal_file(signed, authority=other_federation.authority.certificate)


def test_a_file_of_a_newer_version_says_who_is_older(tmp_path: Path, people: Path) -> None:
    found = load_personal_file(people / "ada.zip")
    newer = msgspec.structs.replace(found.manifest, format_version=2)
    write_personal_file(tmp_path / "newer.zip", newer, found.adapter)

    with pytest.raises(BundleError, match="must be 1, got 2; this sotto is older"):
        load_personal_file(tmp_path / "newer.zip")


def test_what_is_no_personal_file_is_refused(tmp_path: Path, bundle_folder: Path) -> None:
    (tmp_path / "text.zip").write_text("not a zip")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass

    for source, rule in (
        (tmp_path / "text.zip", "must be a .zip"),
        (tmp_path / "empty.zip", "manifest.json must be in the bundle"),
        (bundle_folder, "a bundle holds only"),
        (tmp_path / "absent.zip", "found nothing there"),
    ):
        with pytest.raises(BundleError, match=rule):
            load_personal_file(source)
    assert personal_file.kind_of(bundle_folder) == "keyboard"


def test_what_a_device_published_becomes_its_owners_file(
    tmp_path: Path, vocabulary: Vocabulary, federation: Federation
) -> None:
    settings = msgspec.structs.replace(SETTINGS, tied=False)
    plan = plan_of(settings, vocabulary, personalisation=FedPerSettings())
    whole = named_tensors(schema_of(settings), random_parameters(settings))
    shared = np.concatenate([whole[name].ravel() for name in released_schema(plan).slices])
    write_release(tmp_path / "release", vocabulary, shared, plan=plan)
    release = read_release(tmp_path / "release")
    record = PublishedRecord(
        run=RUN, client="ada", method="fedper", schema_sha256=plan.schema_sha256
    )
    head = {name: whole[name] for name in ("output.weight", "output.bias")}

    export_published(release, PublishedPart(record, head), tmp_path / "ada.zip")

    export_bundle(KeyboardKind(), release, tmp_path / "shared")
    bundle = load_bundle(tmp_path / "shared")
    person = load_personal_file(tmp_path / "ada.zip")
    own = person.on(NextWordGraph(bundle.graph), bundle.manifest)
    exact = NextWordGraph(exporter_for(settings).build(whole).SerializeToString())
    assert (person.manifest.client, person.manifest.origin) == ("ada", "published")
    assert_allclose(distribution(own), distribution(exact), atol=1e-6)
    for changes, rule in (
        ({"run": "f" * 32}, "run of ada's published part must be 0123"),
        ({"method": "vanilla"}, "method of ada's published part must be fedper"),
        ({"schema_sha256": "0"}, "schema of ada's published part must be"),
    ):
        foreign = PublishedPart(msgspec.structs.replace(record, **changes), head)
        with pytest.raises(ExportError, match=rule):
            export_published(release, foreign, tmp_path / "foreign.zip")
    half = PublishedPart(record, {"output.bias": head["output.bias"]})
    with pytest.raises(ExportError, match=r"must hold .* in the model's shapes"):
        export_published(release, half, tmp_path / "half.zip")
    assert not list(tmp_path.glob("[fh]*.zip"))
