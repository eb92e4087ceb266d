from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.testing import assert_array_equal

from export.bundles.keyboard_bundle import load_bundle, write_bundle
from export.bundles.manifest_entries import BundleError, FileDigest
from export.faces.family import ExportError
from export.graphs.registry import exporter_for
from export.making import released_model
from export.making.keyboard import KeyboardKind
from export.making.released_model import export_bundle, quantise_bundle, verify_bundle
from export.parity.words import SHAPES, ParityError
from export.releases.release import read_release
from export.runtime.word_graph import GraphError, NextWordGraph
from models.plan.plan import VocabularySettings, released_schema
from models.settings.model import GruLmSettings, TransformerLmSettings, schema_of
from models.settings.personalisation import FedPerSettings
from models.text.vocabulary import Vocabulary, shipped_vocabulary
from models.vector.codec import FlatVector, named_tensors
from tests.export.conftest import (
    SETTINGS,
    WORDS,
    Federation,
    held_in,
    plan_of,
    random_parameters,
    write_release,
)


def test_a_bundle_holds_the_releases_weights_and_words(
    bundle_folder: Path, parameters: FlatVector
) -> None:
    bundle = load_bundle(bundle_folder)

    assert_array_equal(held_in(bundle), parameters)
    assert bundle.vocabulary.words == WORDS
    assert bundle.manifest.model == SETTINGS
    assert bundle.manifest.parity.shapes == SHAPES


def test_a_verified_bundle_was_compared_with_torch(bundle_folder: Path) -> None:
    found = verify_bundle(bundle_folder)

    assert found.parity is not None
    assert found.parity.largest_difference < 1e-5


def test_without_torch_the_digests_and_weights_are_still_checked(
    bundle_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.parity.checked_graph.is_torch_there", lambda: False)

    assert verify_bundle(bundle_folder).parity is None


def test_equal_releases_make_equal_bundles(release_folder: Path, tmp_path: Path) -> None:
    release = read_release(release_folder)

    for name in ("one.zip", "two.zip"):
        export_bundle(KeyboardKind(), release, tmp_path / name)

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_graph_with_other_weights_is_refused(bundle_folder: Path, tmp_path: Path) -> None:
    # A bundle whose digests all fit, and whose graph is sound, but not the release's.
    bundle = load_bundle(bundle_folder)
    tensors = named_tensors(schema_of(SETTINGS), random_parameters(SETTINGS, seed=5))
    graph = exporter_for(SETTINGS).build(tensors).SerializeToString()
    files = bundle.manifest.files | {"model.onnx": FileDigest.of(graph)}
    forged = replace(bundle.manifest, files=files)
    write_bundle(tmp_path / "forged", forged, {**bundle.files, "model.onnx": graph})

    with pytest.raises(ExportError, match=r"model.onnx must hold parameters .* of the release"):
        verify_bundle(tmp_path / "forged")


def test_a_transformer_is_a_keyboard_too(tmp_path: Path, vocabulary: Vocabulary) -> None:
    settings = TransformerLmSettings(
        vocabulary_size=len(WORDS),
        model_size=4,
        head_count=2,
        layer_count=1,
        feedforward_size=4,
        context_size=8,
    )
    parameters = random_parameters(settings)
    write_release(tmp_path / "release", vocabulary, parameters, plan=plan_of(settings, vocabulary))

    manifest = export_bundle(
        KeyboardKind(), read_release(tmp_path / "release"), tmp_path / "bundle"
    )

    # Two calls of 3 and 4 tokens fit into a context of 8; longer ones are cut to that.
    assert manifest.parity.shapes == ((1, 1), (1, 3), (2, 1), (3, 3), (5, 2), (2, 3), (7, 3))
    found = verify_bundle(tmp_path / "bundle")
    assert_array_equal(held_in(found.bundle), parameters)


def test_frozen_tensors_are_exported_like_the_others(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector
) -> None:
    plan = plan_of(SETTINGS, vocabulary, frozen=("embedding", "gru.bias_hh_l0"))
    write_release(tmp_path / "release", vocabulary, parameters, plan=plan)

    export_bundle(KeyboardKind(), read_release(tmp_path / "release"), tmp_path / "bundle")

    found = verify_bundle(tmp_path / "bundle")
    assert_array_equal(held_in(found.bundle), parameters)


def test_what_is_each_persons_own_becomes_an_input(tmp_path: Path, vocabulary: Vocabulary) -> None:
    settings = replace(SETTINGS, tied=False)
    plan = plan_of(settings, vocabulary, personalisation=FedPerSettings())
    shared = random_parameters(settings)[: released_schema(plan).element_count]
    write_release(tmp_path / "release", vocabulary, shared, plan=plan)

    export_bundle(KeyboardKind(), read_release(tmp_path / "release"), tmp_path / "bundle")

    found = verify_bundle(tmp_path / "bundle")
    assert found.parity is not None
    assert_array_equal(held_in(found.bundle), shared)
    graph = NextWordGraph(found.bundle.graph)
    assert graph.personal_shapes == {
        "personal.output.weight": (19, 6),
        "personal.output.bias": (19,),
    }
    with pytest.raises(GraphError, match="each person's own: give a person's tensors"):
        graph.step(np.array([[1]]), graph.fresh_state(), k=1)


def test_another_task_is_no_keyboard(
    tmp_path: Path, vocabulary: Vocabulary, parameters: FlatVector
) -> None:
    plan = replace(plan_of(SETTINGS, vocabulary), task="handwriting")
    write_release(tmp_path / "release", vocabulary, parameters, plan=plan)

    with pytest.raises(ExportError, match="must be next_word for a keyboard, got handwriting"):
        export_bundle(KeyboardKind(), read_release(tmp_path / "release"), tmp_path / "bundle")


def test_a_graph_that_disagrees_with_torch_is_not_written(
    release_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.parity.checked_graph.TOLERANCE", -1.0)

    with pytest.raises(ParityError, match="must agree with torch"):
        export_bundle(KeyboardKind(), read_release(release_folder), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_exists_is_refused_before_any_work(
    release_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(released_model, "make_graphs")

    with pytest.raises(BundleError, match="exists; remove it"):
        export_bundle(KeyboardKind(), read_release(release_folder), tmp_path)


def test_the_shipped_list_is_known_to_be_english(tmp_path: Path) -> None:
    words = shipped_vocabulary(19)
    named = VocabularySettings(name="english-10k", size=19, sha256=words.sha256.hex())
    plan = replace(plan_of(SETTINGS, words), vocabulary=named)
    write_release(tmp_path / "release", words, np.zeros(385, dtype=np.float32), plan=plan)
    release = read_release(tmp_path / "release")

    assert export_bundle(KeyboardKind(), release, tmp_path / "a").languages == ("en",)
    assert export_bundle(KeyboardKind(["de", "fr"]), release, tmp_path / "b").languages == (
        "de",
        "fr",
    )


def test_a_list_nobody_named_has_no_language(release_folder: Path, tmp_path: Path) -> None:
    assert (
        export_bundle(KeyboardKind(), read_release(release_folder), tmp_path / "a").languages == ()
    )


def test_a_coordinator_signs_its_bundle(
    release_folder: Path, tmp_path: Path, federation: Federation
) -> None:
    export_bundle(
        KeyboardKind(),
        read_release(release_folder),
        tmp_path / "b.zip",
        signed_with=federation.coordinator,
    )

    found = verify_bundle(tmp_path / "b.zip", authority=federation.authority.certificate)
    assert found.bundle.signer is not None
    assert found.bundle.signer.is_trusted


def test_a_bundle_can_be_rounded_once(
    bundle_folder: Path, tmp_path: Path, federation: Federation
) -> None:
    before = load_bundle(bundle_folder)

    quantise_bundle(bundle_folder, tmp_path / "small", signed_with=federation.coordinator)

    authority = federation.authority.certificate
    found = verify_bundle(tmp_path / "small", authority=authority)
    manifest = found.bundle.manifest
    assert (manifest.precision, manifest.round_number) == ("int8", 3)
    assert manifest.rounded_from == before.manifest.parameters_sha256
    assert manifest.parameters_sha256 != before.manifest.parameters_sha256
    assert found.parity is not None
    assert 0 < found.parity.rounding_difference < 0.5
    assert load_bundle(tmp_path / "small").vocabulary.words == WORDS
    with pytest.raises(ExportError, match="must be a float32 bundle, got int8"):
        quantise_bundle(tmp_path / "small", tmp_path / "smaller")
    assert not (tmp_path / "smaller").exists()


def test_an_export_in_8_bits_is_the_rounded_export(release_folder: Path, tmp_path: Path) -> None:
    release = read_release(release_folder)

    export_bundle(KeyboardKind(["en"]), release, tmp_path / "small", precision="int8")
    export_bundle(KeyboardKind(["en"]), release, tmp_path / "exact")
    quantise_bundle(tmp_path / "exact", tmp_path / "rounded")

    small, rounded = (load_bundle(tmp_path / name) for name in ("small", "rounded"))
    assert small.manifest == rounded.manifest
    assert small.graph == rounded.graph


def test_a_graph_without_a_large_personal_part_or_in_8_bits_may_be_small(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    # Weights of 998 kB, of which 15 kB are the personal output layer: more than a graph's nodes.
    settings = GruLmSettings(vocabulary_size=len(WORDS), hidden_size=200, tied=False)
    plan = plan_of(settings, vocabulary, personalisation=FedPerSettings())
    shared = 0.1 * random_parameters(settings)[: released_schema(plan).element_count]
    write_release(tmp_path / "release", vocabulary, shared, plan=plan)
    release = read_release(tmp_path / "release")

    exact = export_bundle(KeyboardKind(), release, tmp_path / "exact")
    small = export_bundle(KeyboardKind(), release, tmp_path / "small", precision="int8")

    whole = schema_of(settings).payload_bytes
    assert exact.files["model.onnx"].size_bytes < whole
    assert small.files["model.onnx"].size_bytes < 0.4 * whole  # Rows of 200 are four blocks of 64
    assert load_bundle(tmp_path / "small").manifest == small
