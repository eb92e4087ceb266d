"""A classifier's bundle against the network, and with one person's attention."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from export.bundles.keyboard_bundle import load_bundle, load_image_bundle
from export.bundles.manifest_entries import BundleError
from export.cli import main
from export.faces.family import ExportError
from export.graphs.registry import exporter_for
from export.making.image import ClassifierKind
from export.making.keyboard import KeyboardKind
from export.making.person_of_release import export_people
from export.making.released_model import export_bundle, quantise_bundle, verify_bundle
from export.parity.images import BATCHES
from export.parity.words import ParityError
from export.people.personal_file import load_personal_file
from export.releases.client_model import client_parameters
from export.releases.release import Release, read_release
from export.runtime.image_graph import ImageGraph
from export.runtime.word_graph import GraphError
from models.networks.flat_parameters import load_parameters
from models.networks.registry import build_network, image_network
from models.plan.plan import Plan, TrainingSettings, plan_schema
from models.settings.image import VitSettings
from models.settings.personalisation import FedRodSettings, PersonalisationSettings
from models.vector.codec import FlatVector, named_tensors
from privacy.noise.settings import NoNoise
from tests.export.conftest import RUN, Federation, random_parameters
from tests.export.people_scene import FEDTP, release_with_people

SETTINGS = VitSettings(
    class_count=5,
    image_size=8,
    patch_size=4,
    model_size=12,
    head_count=2,
    head_size=8,
    layer_count=2,
    feedforward_size=16,
)
IMAGES = np.random.default_rng(4).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)


def image_plan(personalisation: PersonalisationSettings = FEDTP) -> Plan:
    plan = Plan(
        run=RUN,
        task="image_classification",
        model=SETTINGS,
        schema_sha256="00" * 32,
        training=TrainingSettings(learning_rate=1.0, batch_size=1),
        personalisation=personalisation,
        privacy=NoNoise(),
        cohort_size=2,
        seed=1,
    )
    return msgspec.structs.replace(plan, schema_sha256=plan_schema(plan).sha256.hex())


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return release_with_people(tmp_path_factory.mktemp("run"), None, plan=image_plan())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, release: Release) -> Path:
    target = tmp_path_factory.mktemp("bundles") / "shared.zip"
    export_bundle(ClassifierKind(), release, target)
    return target


def torch_log_probabilities(
    settings: VitSettings, parameters: FlatVector, images: np.ndarray
) -> np.ndarray:
    network = image_network(build_network(settings)).eval()
    load_parameters(network, settings.schema(), torch.from_numpy(parameters.copy()))
    with torch.inference_mode():
        features = network.features(torch.from_numpy(images))
        found: np.ndarray = torch.log_softmax(network.head(features), -1).numpy()
    return found


@pytest.mark.parametrize(
    "layer_count", [1, 6, *(pytest.param(stage, marks=pytest.mark.papers) for stage in range(2, 6))]
)
@pytest.mark.parametrize("channel_count", [1, 3])
def test_a_classifier_gives_what_torch_gives(layer_count: int, channel_count: int) -> None:
    settings = msgspec.structs.replace(
        SETTINGS,
        layer_count=layer_count,
        channel_count=channel_count,
        pixel_mean=(0.3,) * channel_count,
        pixel_std=(0.4, 0.2, 0.1)[:channel_count],
    )
    parameters = random_parameters(settings)
    model = exporter_for(settings).build(named_tensors(settings.schema(), parameters))
    graph = ImageGraph(model.SerializeToString())

    for batch in (1, 4):
        shape = (batch, 8, 8, channel_count)
        images = np.random.default_rng(batch).integers(0, 256, shape).astype(np.uint8)
        expected = torch_log_probabilities(settings, parameters, images)
        assert_allclose(graph.classify(images), expected, atol=1e-5)


def test_a_persons_file_on_everyones_bundle_is_that_persons_classifier(
    tmp_path: Path, release: Release, shared: Path
) -> None:
    bundle = load_image_bundle(shared)
    graph = ImageGraph(bundle.graph)
    export_people(release, [(name, tmp_path / f"{name}.zip") for name in ("ada", "ben")])

    found = {}
    for name in ("ada", "ben"):
        own = load_personal_file(tmp_path / f"{name}.zip").on(graph, bundle.manifest)
        found[name] = own.classify(IMAGES)
        whole = client_parameters(release, name)
        assert_allclose(found[name], torch_log_probabilities(SETTINGS, whole, IMAGES), atol=1e-5)

    assert np.abs(found["ada"] - found["ben"]).max() > 1e-4
    with pytest.raises(GraphError, match="give a person's tensors"):
        graph.classify(IMAGES)


def test_a_bundle_says_what_it_is_and_verifies(shared: Path) -> None:
    found = verify_bundle(shared)

    manifest, parity = found.bundle.manifest, found.parity
    assert (manifest.kind, manifest.run, manifest.round_number) == ("image", RUN, 1)
    assert manifest.metrics == {"perplexity": 9.5}
    assert manifest.personal is not None
    assert manifest.personal.method == "fedtp"
    assert parity is not None
    assert parity.shapes == tuple((batch, 8) for batch in BATCHES)
    assert parity.largest_difference < 1e-5


def test_8_bits_are_compared_exactly_and_as_they_ship(tmp_path: Path, release: Release) -> None:
    export_bundle(ClassifierKind(), release, tmp_path / "small", client="ada", precision="int8")

    found = verify_bundle(tmp_path / "small")

    manifest, parity = found.bundle.manifest, found.parity
    assert (manifest.client, manifest.precision) == ("ada", "int8")
    assert parity is not None
    assert parity.largest_difference < 1e-5 < parity.rounding_difference < 0.5


def test_a_classifier_that_is_rounded_later_is_the_one_that_was_exported_rounded(
    tmp_path: Path, release: Release, shared: Path
) -> None:
    export_bundle(ClassifierKind(), release, tmp_path / "small.zip", precision="int8")

    quantise_bundle(shared, tmp_path / "rounded.zip")

    assert (tmp_path / "rounded.zip").read_bytes() == (tmp_path / "small.zip").read_bytes()


def test_a_classifier_is_no_keyboard_and_a_keyboard_no_classifier(
    tmp_path: Path, release: Release, shared: Path, release_folder: Path, bundle_folder: Path
) -> None:
    with pytest.raises(BundleError, match=r"must be a bundle of kind keyboard, got .* image"):
        load_bundle(shared)
    with pytest.raises(BundleError, match="a bundle holds only"):
        load_image_bundle(bundle_folder)
    with pytest.raises(ExportError, match="must be image_classification for a classifier"):
        export_bundle(ClassifierKind(), read_release(release_folder), tmp_path / "bundle")
    with pytest.raises(ExportError, match="must be next_word for a keyboard"):
        export_bundle(KeyboardKind(), release, tmp_path / "bundle")


def test_a_method_that_classifies_by_more_than_the_network_is_refused(
    tmp_path: Path, release: Release
) -> None:
    plan = msgspec.structs.replace(release.plan, personalisation=FedRodSettings())
    balanced = Release(release.record, plan, None, release.parameters, None)

    with pytest.raises(ExportError, match=r'method "fedrod" .* cannot be exported'):
        export_bundle(ClassifierKind(), balanced, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("pixels", "rule"),
    [
        (IMAGES[0], r"must have shape \(batch, 8, 8, 3\), got \(8, 8, 3\)"),
        (IMAGES[:, :4], r"got \(3, 4, 8, 3\)"),
        (IMAGES[:0], r"got \(0, 8, 8, 3\)"),
        (IMAGES.astype(np.float32), "must be uint8, got float32"),
    ],
)
def test_what_is_no_image_is_refused(shared: Path, pixels: np.ndarray, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ImageGraph(load_image_bundle(shared).graph).classify(pixels)


def test_a_graph_that_disagrees_with_torch_is_not_written(
    tmp_path: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.parity.checked_graph.TOLERANCE", -1.0)

    with pytest.raises(ParityError, match="must agree with torch"):
        export_bundle(ClassifierKind(), release, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_and_verifies_a_signed_classifier(
    tmp_path: Path, federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    server = tmp_path / "server"
    shutil.copytree(federation.folder, server)
    release_with_people(server, None, plan=image_plan(), signer=federation.coordinator)
    target, authority = str(tmp_path / "image.zip"), server / "authority/authority.crt"

    assert main(["image", str(server), "--out", target]) == 0
    assert main(["verify", target, "--authority", str(authority)]) == 0
    assert "of the given authority" in capsys.readouterr().out
    assert main(["inspect", target, "--json"]) == 0
    inspected = msgspec.json.decode(capsys.readouterr().out)

    assert inspected["personal_tensors"] == [
        f"blocks.{block}.attention.to_qkv.weight" for block in (0, 1)
    ]
    assert set(inspected["bytes"]) == {"model.onnx"}
