"""Turn a release into a keyboard's bundle, and check a bundle as its exporter did."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from export.bundle import Bundle, load_bundle, write_bundle
from export.bundle_files import check_target
from export.exporter import ExportError, exporter_for, parse_graph
from export.graph_face import OPSET
from export.manifest import (
    MODEL_FILE,
    VOCABULARY_FILE,
    FileDigest,
    Manifest,
    ParityRecord,
    PrivacyStatement,
)
from export.parity import check_parity, is_torch_there
from export.release import Release, parameters_sha256
from export.runtime import NextWordGraph
from models.codec import FlatVector, named_tensors
from models.model_settings import schema_of
from models.plan import plan_schema
from models.schema import RELEASED
from models.vocabulary import SHIPPED_NAME, Vocabulary

if TYPE_CHECKING:
    from privacy.identity import Identity


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
    languages: Sequence[str] | None = None,
    signed_with: "Identity | None" = None,
) -> Manifest:
    """Write the bundle of a release, after its graph agreed with torch.

    Args:
        release: The release, as ``read_release`` gives it.
        target: New folder, or a ``.zip``, which is replaced in one step.
        languages: BCP 47 tags of the word list; None knows those of the list shipped with sotto.
        signed_with: The coordinator, to sign the bundle.

    Returns:
        The bundle's manifest.

    Raises:
        ExportError: If the model is of a family or kind that cannot be exported.
        ParityError: If graph and torch disagree, or torch is missing.
        BundleError: If the target cannot be made there.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    words = _exportable_words(release)
    settings = release.plan.model
    tensors = named_tensors(schema_of(settings), release.parameters)
    graph = exporter_for(settings).build(tensors).SerializeToString(deterministic=True)
    parity = check_parity(NextWordGraph(graph), settings, release.parameters)
    if languages is None:
        languages = ("en",) if _uses_shipped_list(release) else ()
    manifest = _manifest(release, graph, words, tuple(languages), parity)
    write_bundle(target, manifest, graph=graph, vocabulary=words, signed_with=signed_with)
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
    graph = NextWordGraph(bundle.graph)
    parameters = recover_parameters(bundle)
    parity = None
    if is_torch_there():
        parity = check_parity(graph, bundle.manifest.model, parameters)
    return Verification(bundle, parity)


def recover_parameters(bundle: Bundle) -> FlatVector:
    """Return the parameters that a bundle's graph holds, flat float32, shape ``(elements,)``.

    Raises:
        ExportError: If they are not, bit for bit, those that the manifest names.
    """
    settings = bundle.manifest.model
    tensors = exporter_for(settings).recover(parse_graph(bundle.graph))
    flat = np.concatenate([tensors[spec.name].ravel() for spec in schema_of(settings).tensors])
    found = parameters_sha256(flat)
    if found != bundle.manifest.parameters_sha256:
        raise ExportError(
            f"the graph must hold parameters {bundle.manifest.parameters_sha256[:16]}… of the "
            f"release, got {found[:16]}…"
        )
    return flat


def _uses_shipped_list(release: Release) -> bool:
    vocabulary = release.plan.vocabulary
    return vocabulary is not None and vocabulary.name == SHIPPED_NAME


def _exportable_words(release: Release) -> Vocabulary:
    """Return the word list of a release that a keyboard can be made of."""
    plan = release.plan
    if plan.task != "next_word" or release.vocabulary is None:
        raise ExportError(f"task of the release must be next_word for a keyboard, got {plan.task}")
    roles = {spec.role for spec in plan_schema(plan).tensors}
    if not roles <= set(RELEASED):
        raise ExportError(
            f"every tensor must be released to be exported, got {sorted(roles)} with method "
            f"{plan.personalisation.method}"
        )
    return release.vocabulary


def _manifest(
    release: Release,
    graph: bytes,
    words: Vocabulary,
    languages: tuple[str, ...],
    parity: ParityRecord,
) -> Manifest:
    plan, record = release.plan, release.record
    return Manifest(
        files={
            MODEL_FILE: FileDigest.of(graph),
            VOCABULARY_FILE: FileDigest.of(words.to_bytes()),
        },
        model=plan.model,
        schema_sha256=schema_of(plan.model).sha256.hex(),
        parameters_sha256=record.parameters_sha256,
        vocabulary_sha256=words.sha256.hex(),
        run=record.run,
        round_number=record.round,
        metrics=record.metrics,
        privacy=PrivacyStatement(
            mode=str(plan.privacy.__struct_config__.tag), guarantee=record.guarantee
        ),
        languages=languages,
        opset=OPSET,
        parity=parity,
    )
