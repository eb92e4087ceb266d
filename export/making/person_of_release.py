"""Make the personal files of clients from a release.

The coordinator makes what the run's method generates. A part that a method keeps on its device
comes from that device alone, in a file that its owner published (`models.plan.published_part`).
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from export.bundles.files import check_target
from export.bundles.manifest import personal_schema
from export.making.person_of_device import PersonOf, check_published, encode_person
from export.making.released_model import personal_names
from export.people.adapter import Resting
from export.people.personal_file import PersonalManifest, write_personal_file
from export.releases.client_model import ClientModels
from export.releases.release import Release
from models.plan.plan import plan_schema
from models.plan.published_part import PublishedPart
from models.vector.schema import Role

if TYPE_CHECKING:
    from privacy.identities.party import Identity


def export_people(
    release: Release,
    targets: Iterable[tuple[str, Path]],
    *,
    resting: Resting = "float32",
    signed_with: "Identity | None" = None,
) -> list[PersonalManifest]:
    """Write the personal files of some clients, each from what the release makes for it.

    Args:
        targets: Client names, and where their files go: new folders, or ``.zip`` files.

    Raises:
        ExportError: If the release makes nothing for a client, or knows nothing of one.
        BundleError: If a target cannot be made there.
        OSError: If the disk is full or refuses; the file under way is not left half.
    """
    models, made_for = ClientModels(release), _made_for(release)
    made = []
    for client, target in targets:
        check_target(target)
        manifest, adapter = encode_person(
            made_for, client, models.generated(client), resting, origin="generated"
        )
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

    Arguments as of ``export_people``. Raise ExportError if the part is of another run, method or
    model,
    or the release knows nothing of the client though the method generates a part for it.
    """
    check_target(target)
    tensors = _with_generated(release, published)
    manifest, adapter = encode_person(
        _made_for(release), published.record.client, tensors, resting, origin="published"
    )
    write_personal_file(target, manifest, adapter, signed_with=signed_with)
    return manifest


def export_generated(
    release: Release, client: str, target: Path, *, signed_with: "Identity | None" = None
) -> PersonalManifest:
    """Write what the coordinator makes of a person's model whose other part the device keeps.

    It fits no bundle: the device adds its part (``export.making.person_of_device.own_tensors``).
    Arguments and errors as of ``export_people``.
    """
    check_target(target)
    tensors = ClientModels(release, with_published=True).generated(client)
    manifest, adapter = encode_person(
        _made_for(release, tuple(tensors)), client, tensors, "float32", origin="generated"
    )
    write_personal_file(target, manifest, adapter, signed_with=signed_with)
    return manifest


def _with_generated(release: Release, published: PublishedPart) -> dict[str, NDArray[np.float32]]:
    """Return all that is the client's own, in schema order."""
    plan, schema = release.plan, plan_schema(release.plan)
    check_published(
        published,
        schema,
        run=release.record.run,
        method=plan.personalisation.method,
        whose="the release's",
    )
    own = dict(published.tensors)
    if schema.with_roles(Role.GENERATED).tensors:
        own |= ClientModels(release, with_published=True).generated(published.record.client)
    return {name: own[name] for name in personal_names(plan)}


def _made_for(release: Release, names: Collection[str] | None = None) -> PersonOf:
    """Return the origin of files; ``names`` are a part of what is a person's own."""
    plan = release.plan
    return PersonOf(
        run=release.record.run,
        round_number=release.record.round,
        method=plan.personalisation.method,
        model=plan.model,
        schema=personal_schema(plan.model, personal_names(plan) if names is None else names),
    )
