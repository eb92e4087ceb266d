"""Make the personal files of clients from a release.

The coordinator makes what the run's method generates. A part that a method keeps on its device
comes from that device alone, in a file that its owner published (`models.published_part`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from export.adapter import Resting, encode_adapter
from export.bundle_files import check_target
from export.client_model import ClientModels
from export.exporter import ExportError, exporter_for
from export.graph_face import PERSONAL
from export.manifest import personal_schema
from export.manifest_base import FileDigest
from export.personal_file import ADAPTER_FILE, PersonalManifest, write_personal_file
from export.release import Release
from export.released_model import personal_names
from models.plan import Plan, plan_schema
from models.published_part import PublishedPart
from models.schema import Role
from models.transformer_tts_settings import TransformerTtsSettings

if TYPE_CHECKING:
    from privacy.identity import Identity


def export_people(
    release: Release,
    targets: Iterable[tuple[str, Path]],
    *,
    resting: Resting = "float32",
    signed_with: "Identity | None" = None,
) -> list[PersonalManifest]:
    """Write the personal files of some clients, each from what the release makes for it.

    Args:
        release: The release, as ``read_release`` gives it.
        targets: Client names, and where their files go: new folders, or ``.zip`` files.
        resting: How the tensors are kept.
        signed_with: The coordinator, to sign the files.

    Returns:
        The files' manifests.

    Raises:
        ExportError: If the release makes nothing for a client, or knows nothing of one.
        BundleError: If a target cannot be made there.
        OSError: If the disk is full or refuses; the file under way is not left half.
    """
    models = ClientModels(release)
    made = []
    for client, target in targets:
        check_target(target)
        manifest, adapter = _person(release, client, models.generated(client), resting)
        write_personal_file(target, manifest, adapter, signed_with=signed_with)
        made.append(manifest)
    return made


def export_published(
    release: Release,
    published: PublishedPart,
    target: Path,
    *,
    resting: Resting = "float32",
    signed_with: "Identity | None" = None,
) -> PersonalManifest:
    """Write the personal file of a client whose device published its own part.

    Args:
        release: The release, as ``read_release`` gives it.
        published: What the device published.
        target: New folder, or a ``.zip``.
        resting: How the tensors are kept.
        signed_with: The coordinator, to sign the file.

    Raises:
        ExportError: If the part is of another run, method or model, or the release knows nothing of
            the client though the method generates a part for it.
        BundleError: If the target cannot be made there.
        OSError: If the disk is full or refuses; nothing is left half.
    """
    check_target(target)
    tensors = _with_generated(release, published)
    client = published.record.client
    manifest, adapter = _person(release, client, tensors, resting, origin="published")
    write_personal_file(target, manifest, adapter, signed_with=signed_with)
    return manifest


def _with_generated(release: Release, published: PublishedPart) -> dict[str, NDArray[np.float32]]:
    """Return all that is the client's own, in schema order."""
    plan, record = release.plan, published.record
    schema = plan_schema(plan)
    for name, found, expected in (
        ("run", record.run, release.record.run),
        ("method", record.method, plan.personalisation.method),
        ("schema", record.schema_sha256, schema.sha256.hex()),
    ):
        if found != expected:
            raise ExportError(
                f"{name} of {record.client}'s published part must be {expected}, the release's, "
                f"got {found}"
            )
    personal = schema.with_roles(Role.PERSONAL)
    shapes = {spec.name: spec.shape for spec in personal.tensors}
    found_shapes = {name: tensor.shape for name, tensor in published.tensors.items()}
    if not shapes or found_shapes != shapes:
        raise ExportError(
            f"{record.client}'s published part must hold {sorted(shapes)} in the model's shapes, "
            f"got {sorted(found_shapes)}"
        )
    own = dict(published.tensors)
    if schema.with_roles(Role.GENERATED).tensors:
        own |= ClientModels(release, with_published=True).generated(record.client)
    return {name: own[name] for name in personal_names(plan)}


def _inputs(
    plan: Plan, tensors: Mapping[str, NDArray[np.float32]]
) -> Mapping[str, NDArray[np.float32]]:
    """Return one person's tensors as the graphs take them, by their inputs' names."""
    if isinstance(plan.model, TransformerTtsSettings):
        return {PERSONAL + name: tensor for name, tensor in tensors.items()}
    return exporter_for(plan.model).personal_inputs(tensors)


def _person(
    release: Release,
    client: str,
    tensors: Mapping[str, NDArray[np.float32]],
    resting: Resting,
    *,
    origin: Literal["generated", "published"] = "generated",
) -> tuple[PersonalManifest, bytes]:
    plan = release.plan
    adapter = encode_adapter(_inputs(plan, tensors), resting)
    manifest = PersonalManifest(
        client=client,
        origin=origin,
        run=release.record.run,
        round_number=release.record.round,
        method=plan.personalisation.method,
        schema_sha256=personal_schema(plan.model, personal_names(plan)).sha256.hex(),
        resting=resting,
        files={ADAPTER_FILE: FileDigest.of(adapter)},
    )
    return manifest, adapter
