"""Turn a release into a bundle, round a bundle to 8 bits, and check one: one way for every kind.

A release's graphs are built and compared with torch, and nothing is written before they agreed over
shapes that nothing was built for. `BundleKind` holds the differences of a keyboard, a classifier
and a voice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.files import check_target
from export.bundles.keyboard_bundle import (
    AnyBundle,
    Files,
    load_bundle,
    load_image_bundle,
    load_speech_bundle,
    write_bundle,
)
from export.bundles.manifest import BundleManifest, ParityRecord, PersonalPart, PrivacyStatement
from export.bundles.manifest_entries import FileDigest
from export.bundles.speech_manifest import SpeechManifest
from export.faces.family import ExportError, Precision
from export.faces.words import OPSET
from export.parity.checked_graph import compare_again, make_graphs, recover_held
from export.people.personal_file import kind_of
from export.releases.release import Release
from models.plan.plan import Plan, plan_schema, released_schema
from models.plan.release_record import Metric
from models.settings.model import schema_of
from models.vector.codec import named_tensors
from models.vector.schema import RELEASED

if TYPE_CHECKING:
    from privacy.identities.party import Identity

_LOADERS: dict[str, Callable[..., AnyBundle]] = {
    "keyboard": load_bundle,
    "image": load_image_bundle,
    "speech": load_speech_bundle,
}

M_co = TypeVar("M_co", bound=BundleManifest, covariant=True)


class BundleKind(Protocol[M_co]):
    """A kind of bundle that a release can become."""

    @property
    def manifest(self) -> Callable[..., M_co]:
        """Return the struct of its manifest."""

    def beside(self, release: Release) -> tuple[Files, Mapping[str, object]]:
        """Return the files beside a release's graphs, and the manifest's fields of this kind.

        Raise ExportError if the release, or what goes with it, is of another task or method.
        """


def export_bundle(
    kind: BundleKind[M_co],
    release: Release,
    target: Path,
    *,
    client: str | None = None,
    precision: Precision = "float32",
    signed_with: "Identity | None" = None,
) -> M_co:
    """Write the bundle of a release, after its graphs agreed with torch.

    Tensors that are each person's own are inputs of the graphs (`export.people.personal_file` holds
    one person's); everything else is in them.

    Args:
        target: New folder, or a ``.zip``, which is replaced in one step.
        client: The person whose model is to be whole in the bundle; None leaves out what is each
            person's own.

    Raises:
        ExportError: If the release cannot become such a bundle, or nothing is known of the client.
        ParityError: If a graph and torch disagree, or torch is missing.
        BundleError: If the target cannot be made there.
    """
    check_target(target)
    plan, record = release.plan, release.record
    beside, facts = kind.beside(release)
    personal = personal_names(plan) if client is None else ()
    tensors = held_tensors(release, client)
    made = make_graphs(plan.model, tensors, personal=personal, precision=precision)
    files = {**made.files, **beside}
    method = plan.personalisation.method
    manifest = kind.manifest(
        files={name: FileDigest.of(content) for name, content in files.items()},
        model=plan.model,
        schema_sha256=schema_of(plan.model).sha256.hex(),
        run=record.run,
        round_number=record.round,
        metrics=record.metrics,
        privacy=privacy_of(release),
        opset=OPSET,
        personal=PersonalPart(method=method, tensors=personal) if personal else None,
        client=client,
        **made.facts,
        **facts,
    )
    write_bundle(target, manifest, files, signed_with=signed_with)
    return manifest


def quantise_bundle(
    source: Path,
    target: Path,
    *,
    authority: bytes | None = None,
    signed_with: "Identity | None" = None,
) -> BundleManifest:
    """Write a bundle with the same model rounded to 8 bits, after it agreed with torch.

    A voice's vocoder stays as it is. Arguments as of ``verify_bundle`` and ``export_bundle``.

    Raises:
        BundleError: If a file is not what the manifest says, or the target cannot be made there.
        ExportError: If the bundle is rounded already, or does not hold what its manifest names.
        ParityError: If a graph and torch disagree, or torch is missing.
    """
    check_target(target)
    bundle = load_any(source, authority=authority)
    before: BundleManifest = bundle.manifest
    if before.precision != "float32":
        raise ExportError(f"{source} must be a float32 bundle, got {before.precision}")
    personal = tuple(before.personal_schema.slices)
    tensors = recover_held(before, bundle.files, personal=personal)
    made = make_graphs(before.model, tensors, personal=personal, precision="int8")
    files = {**bundle.files, **made.files}
    digests = {name: FileDigest.of(content) for name, content in files.items()}
    manifest = msgspec.structs.replace(
        before, format_version=before.newest_version, files=digests, **made.facts
    )
    write_bundle(target, manifest, files, signed_with=signed_with)
    return manifest


@dataclass(frozen=True)
class Verification:
    """Result of a check of a bundle, whose digests and parameters fit.

    Attributes:
        bundle: The bundle.
        parity: How the model's graphs compare with torch here; None if torch is missing.
        vocoder: The same of a voice's vocoder; None without one, too.
    """

    bundle: AnyBundle
    parity: ParityRecord | None
    vocoder: ParityRecord | None = None


def verify_bundle(source: Path, *, authority: bytes | None = None) -> Verification:
    """Check a bundle: digests, signature, that it holds the release's weights, and parity.

    ``authority`` is the federation's certificate, DER; None leaves open who signed.

    Raises:
        BundleError: If a file is not what the manifest says.
        GraphError: If onnxruntime cannot load a graph.
        ExportError: If the graphs do not hold the parameters that the manifest names.
        ParityError: If torch is there and disagrees.
    """
    bundle = load_any(source, authority=authority)
    manifest = bundle.manifest
    parity = compare_again(
        manifest,
        bundle.files,
        personal=tuple(manifest.personal_schema.slices),
        precision=manifest.precision,
    )
    if not isinstance(manifest, SpeechManifest) or manifest.vocoder is None:
        return Verification(bundle, parity)
    return Verification(bundle, parity, compare_again(manifest.vocoder, bundle.files))


def load_any(source: Path, *, authority: bytes | None = None) -> AnyBundle:
    """Read a bundle of any kind; arguments and errors as of ``load_bundle``."""
    kind = kind_of(source)
    if kind not in _LOADERS:
        raise ExportError(f"{source} must be everyone's bundle, got a file of kind {kind}")
    return _LOADERS[kind](source, authority=authority)


def personal_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of the tensors that no release holds, in schema order."""
    return tuple(spec.name for spec in plan_schema(plan).tensors if spec.role not in RELEASED)


def held_tensors(release: Release, client: str | None) -> Mapping[str, NDArray[np.float32]]:
    """Return the tensors of a graph: the shared ones, or all of one client's model."""
    if client is None:
        return named_tensors(released_schema(release.plan), release.parameters)
    from export.releases.client_model import client_parameters  # Loads torch.

    return named_tensors(schema_of(release.plan.model), client_parameters(release, client))


def privacy_of(release: Release) -> PrivacyStatement:
    """Return a release's promise for its run, and what was spent so far; ExportError if corrupt."""
    privacy, metrics = release.plan.privacy, release.record.metrics
    stated: dict[str, Metric] = {
        "mode": privacy.__struct_config__.tag,
        "guarantee": release.record.guarantee,
    }
    if privacy.guarantees_privacy:
        stated |= {"epsilon": metrics.get("epsilon"), "delta": metrics.get("delta")}
    try:
        return msgspec.convert(stated, PrivacyStatement)
    except msgspec.ValidationError as error:
        raise ExportError(f"the release's figures of privacy are refused: {error}") from None
