"""Turn a release of image classification into a bundle, and read and check one.

The bundle is a keyboard's without words: a graph (`export.runtime.image_graph`) and a manifest that
pins it. No graph is written before it agreed with torch over batches that nothing was built for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from export.bundles.files import check_target, open_files, write_files
from export.bundles.manifest import MODEL_FILE, Manifest, ParityRecord, decode_manifest
from export.bundles.manifest_entries import BundleError
from export.bundles.signed_by import Signer
from export.bundles.signed_files import SIGNED_NAMES, read_checked, read_manifest, signed_files
from export.faces.family import ExportError, Precision
from export.making.released_model import held_tensors, personal_names, release_manifest
from export.parity.checked_graph import compare_again, make_graph
from export.parity.images import check_images
from export.releases.release import Release
from export.runtime.image_graph import ImageGraph
from models.plan.roles import has_balanced_head
from models.settings.model import ImageModelSettings
from models.settings.personalisation import PFedGpSettings

if TYPE_CHECKING:
    from privacy.identities.party import Identity


@dataclass(frozen=True)
class ImageBundle:
    """Hold a classifier's bundle whose digests fit.

    Attributes:
        manifest: What it is.
        graph: ONNX bytes.
        signer: Who signed it; None if nobody did.
    """

    manifest: Manifest
    graph: bytes
    signer: Signer | None


def export_image(
    release: Release,
    target: Path,
    *,
    client: str | None = None,
    precision: Precision = "float32",
    signed_with: "Identity | None" = None,
) -> Manifest:
    """Write the bundle of a classifier's release, after its graph agreed with torch.

    Args:
        release: The release, as ``read_release`` gives it.
        target: New folder, or a ``.zip``, which is replaced in one step.
        client: Whose model is to be whole in the bundle; None leaves out what is each person's own.
        precision: How matrices are stored and multiplied.
        signed_with: The coordinator, to sign the bundle.

    Returns:
        The bundle's manifest.

    Raises:
        ExportError: If the model is of a family or method that cannot be exported, or nothing is
            known of the client.
        ParityError: If graph and torch disagree, or torch is missing.
        BundleError: If the target cannot be made there.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    settings = _classifier(release)
    personal = personal_names(release.plan) if client is None else ()
    made = make_graph(
        settings,
        held_tensors(release, client),
        personal=personal,
        precision=precision,
        check=check_images,
    )
    manifest = release_manifest(
        release,
        made,
        kind="image",
        beside={},
        vocabulary_sha256="",
        languages=(),
        personal=personal,
        client=client,
    )
    write_files(target, signed_files(manifest.encode(), {MODEL_FILE: made.encoded}, signed_with))
    return manifest


def load_image_bundle(source: Path, *, authority: bytes | None = None) -> ImageBundle:
    """Read a classifier's bundle and check its signature, if it has one, and its digest.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER. If given, the bundle must be
            signed by a coordinator that it certified.

    Raises:
        BundleError: If it is not what its manifest says, not a classifier's, or of another format
            version; or if the signature does not fit.
    """
    files = open_files(source, (*SIGNED_NAMES, MODEL_FILE))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = decode_manifest(encoded)
    if manifest.kind != "image":
        raise BundleError(f"{source} must be a classifier's bundle, got one of a {manifest.kind}")
    return ImageBundle(manifest, read_checked(files, manifest.files, MODEL_FILE), signer)


def verify_image(
    source: Path, *, authority: bytes | None = None
) -> tuple[ImageBundle, ParityRecord | None]:
    """Check a bundle: digests, signature, that it holds the weights it names, and parity.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER; None leaves open who signed.

    Returns:
        The bundle, and how it compares with torch here; None where torch is missing.

    Raises:
        BundleError: If a file is not what the manifest says.
        GraphError: If onnxruntime cannot load the graph.
        ExportError: If the graph does not hold the parameters that the manifest names.
        ParityError: If torch is there and disagrees.
    """
    bundle = load_image_bundle(source, authority=authority)
    ImageGraph(bundle.graph)
    return bundle, compare_again(bundle, check_images)


def _classifier(release: Release) -> ImageModelSettings:
    plan = release.plan
    if plan.task != "image_classification" or not isinstance(plan.model, ImageModelSettings):
        raise ExportError(
            f"task of the release must be image_classification for a classifier, got {plan.task}"
        )
    settings = plan.personalisation
    if has_balanced_head(settings) or isinstance(settings, PFedGpSettings):
        raise ExportError(
            f'method "{settings.method}" with these settings classifies by more than the network; '
            "it cannot be exported"
        )
    return plan.model
