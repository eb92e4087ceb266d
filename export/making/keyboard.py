"""Turn a release into a keyboard's bundle, and check a bundle as its exporter did."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from export.bundles.files import check_target
from export.bundles.keyboard_bundle import Bundle, load_bundle, write_bundle
from export.bundles.manifest import (
    FORMAT_VERSION,
    MODEL_FILE,
    VOCABULARY_FILE,
    Manifest,
    ParityRecord,
)
from export.bundles.manifest_entries import FileDigest
from export.faces.family import ExportError, Precision
from export.making.released_model import held_tensors, personal_names, release_manifest
from export.parity.checked_graph import compare_again, make_graph, recover_parameters
from export.parity.words import check_parity
from export.releases.release import Release, parameters_sha256
from export.runtime.word_graph import NextWordGraph, PersonalInputs
from models.settings.model import ModelSettings
from models.text.vocabulary import SHIPPED_NAME, Vocabulary
from models.vector.codec import FlatVector, named_tensors

if TYPE_CHECKING:
    from privacy.identities.party import Identity


@dataclass(frozen=True)
class Verification:
    """Hold what a check of a bundle found.

    Attributes:
        bundle: The bundle, whose digests and parameters fit.
        parity: How the graph compares with torch here; None where torch is missing.
    """

    bundle: Bundle
    parity: ParityRecord | None


def export_keyboard(
    release: Release,
    target: Path,
    *,
    client: str | None = None,
    precision: Precision = "float32",
    languages: Sequence[str] | None = None,
    signed_with: "Identity | None" = None,
) -> Manifest:
    """Write the bundle of a release, after its graph agreed with torch.

    Tensors that are each person's own are inputs of the graph (`export.people.personal_file` holds
    one person's); everything else is in it.

    Args:
        release: The release, as ``read_release`` gives it.
        target: New folder, or a ``.zip``, which is replaced in one step.
        client: Whose model is to be whole in the bundle; None leaves out what is each person's own.
        precision: How matrices are stored and multiplied.
        languages: BCP 47 tags of the word list; None knows those of the list shipped with sotto.
        signed_with: The coordinator, to sign the bundle.

    Returns:
        The bundle's manifest.

    Raises:
        ExportError: If the model is of a family or kind that cannot be exported, or nothing is
            known of the client.
        ParityError: If graph and torch disagree, or torch is missing.
        BundleError: If the target cannot be made there.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    words = _words(release)
    personal = personal_names(release.plan) if client is None else ()
    made = make_graph(
        release.plan.model,
        held_tensors(release, client),
        personal=personal,
        precision=precision,
        check=check_words,
    )
    if languages is None:
        languages = ("en",) if _uses_shipped_list(release) else ()
    manifest = release_manifest(
        release,
        made,
        kind="keyboard",
        beside={VOCABULARY_FILE: words.to_bytes()},
        vocabulary_sha256=words.sha256.hex(),
        languages=languages,
        personal=personal,
        client=client,
    )
    write_bundle(target, manifest, graph=made.encoded, vocabulary=words, signed_with=signed_with)
    return manifest


def quantise_bundle(
    source: Path,
    target: Path,
    *,
    authority: bytes | None = None,
    signed_with: "Identity | None" = None,
) -> Manifest:
    """Write a bundle with the same model rounded to 8 bits, after it agreed with torch.

    Args:
        source: Folder or ``.zip`` of a float32 bundle.
        target: New folder, or a ``.zip``, which is replaced in one step.
        authority: Certificate of the federation's authority, DER; None leaves open who signed.
        signed_with: The coordinator, to sign the new bundle.

    Returns:
        The new bundle's manifest.

    Raises:
        BundleError: If a file is not what the manifest says, or the target cannot be made there.
        ExportError: If the bundle is rounded already, or does not hold what its manifest names.
        ParityError: If graph and torch disagree, or torch is missing.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    bundle = load_bundle(source, authority=authority)
    before = bundle.manifest
    if before.precision != "float32":
        raise ExportError(f"{source} must be a float32 bundle, got {before.precision}")
    tensors = named_tensors(before.held_schema, recover_parameters(bundle))
    personal = tuple(before.personal_schema.slices)
    made = make_graph(before.model, tensors, personal=personal, precision="int8", check=check_words)
    manifest = replace(
        before,
        format_version=FORMAT_VERSION,
        files=before.files | {MODEL_FILE: FileDigest.of(made.encoded)},
        parameters_sha256=parameters_sha256(made.parameters),
        precision=made.precision,
        rounded_from=made.rounded_from,
        parity=made.parity,
    )
    words = bundle.vocabulary
    write_bundle(target, manifest, graph=made.encoded, vocabulary=words, signed_with=signed_with)
    return manifest


def verify_bundle(source: Path, *, authority: bytes | None = None) -> Verification:
    """Check a bundle: digests, signature, that it holds the release's weights, and parity.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER; None leaves open who signed.

    Raises:
        BundleError: If a file is not what the manifest says.
        GraphError: If onnxruntime cannot load the graph.
        ExportError: If the graph does not hold the parameters that the manifest names.
        ParityError: If torch is there and disagrees.
    """
    bundle = load_bundle(source, authority=authority)
    NextWordGraph(bundle.graph)
    return Verification(bundle, compare_again(bundle, check_words))


def check_words(
    encoded: bytes,
    inputs: PersonalInputs,
    settings: ModelSettings,
    parameters: FlatVector,
    tolerance: float,
) -> ParityRecord:
    """Compare a graph with torch (``export.parity.checked_graph.Check``)."""
    graph = NextWordGraph(encoded).for_person(inputs)
    return check_parity(graph, settings, parameters, tolerance=tolerance)


def _uses_shipped_list(release: Release) -> bool:
    vocabulary = release.plan.vocabulary
    return vocabulary is not None and vocabulary.name == SHIPPED_NAME


def _words(release: Release) -> Vocabulary:
    """Return the word list of a release that a keyboard can be made of."""
    if release.plan.task != "next_word" or release.vocabulary is None:
        raise ExportError(
            f"task of the release must be next_word for a keyboard, got {release.plan.task}"
        )
    return release.vocabulary
