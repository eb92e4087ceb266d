"""Make the file of everybody's embeddings from a release (`export.people.people_file`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from export.bundles.files import check_target
from export.bundles.manifest import personal_schema
from export.bundles.manifest_entries import FileDigest
from export.faces.family import ExportError
from export.faces.personal_inputs import personal_inputs
from export.making.released_model import personal_names
from export.people.people_file import PeopleManifest, encode_people, write_people_file
from export.releases.client_model import ClientModels
from export.releases.release import Release
from models.personal.hypernetwork_numpy import generate
from models.settings.hypernetwork import hypernetwork_schema
from models.vector.codec import named_tensors
from models.vector.schema import Schema

if TYPE_CHECKING:
    from privacy.identities.party import Identity

_LARGEST_DIFFERENCE = 1e-5
"""Share of the largest element to which both sides round."""


def export_everybody(
    release: Release, target: Path, *, signed_with: "Identity | None" = None
) -> PeopleManifest:
    """Write the hypernetwork and the embedding of every client that took part.

    The release is a keyboard's; the target is a new folder or a ``.zip``.

    Raises:
        ExportError: If the method does not make all that is a person's own, nobody took part yet,
            or numpy makes other tensors than the hypernetwork that was trained.
        BundleError: If the target cannot be made there.
    """
    check_target(target)
    plan = release.plan
    if plan.task != "next_word":
        raise ExportError(f"people are made while they are served for keyboards, got {plan.task}")
    models = ClientModels(release)
    if not models.clients:
        raise ExportError("no client has an embedding yet; it has one after its first round")
    generated = personal_schema(plan.model, personal_names(plan))
    embeddings = {name: models.embedding(name) for name in models.clients}
    _check(models, embeddings, generated)
    contents = encode_people(embeddings, models.phi, _places(release, generated))
    manifest = PeopleManifest(
        run=release.record.run,
        round_number=release.record.round,
        method=plan.personalisation.method,
        schema_sha256=generated.sha256.hex(),
        hypernetwork=models.settings,
        files={name: FileDigest.of(content) for name, content in contents.items()},
    )
    write_people_file(target, manifest, contents, signed_with=signed_with)
    return manifest


def _places(release: Release, generated: Schema) -> dict[str, NDArray[np.int64]]:
    """Return where each element of the graph's inputs lies in the generated vector.

    A graph may order tensors otherwise than the model, as a GRU's gates: the numbers 0, 1, 2 and so
    on
    are put into its order in place of parameters.
    """
    numbers = np.arange(generated.element_count, dtype=np.float64)
    tensors: Mapping[str, NDArray[Any]] = {
        spec.name: numbers[generated.slices[spec.name]].reshape(spec.shape)
        for spec in generated.tensors
    }
    inputs = personal_inputs(release.plan.model, tensors)
    return {name: np.ascontiguousarray(held).astype(np.int64) for name, held in inputs.items()}


def _check(
    models: ClientModels, embeddings: Mapping[str, NDArray[np.float32]], generated: Schema
) -> None:
    """Hold numpy against torch for the first client."""
    client = models.clients[0]
    phi = named_tensors(hypernetwork_schema(models.settings, generated), models.phi)
    count = len(generated.tensors)
    made = generate(phi, models.settings, embeddings[client], tensor_count=count)
    trained = np.concatenate([tensor.ravel() for tensor in models.generated(client).values()])
    difference = float(np.abs(made - trained).max() / (1 + np.abs(trained).max()))
    if not difference <= _LARGEST_DIFFERENCE:
        raise ExportError(
            f"numpy must make what torch makes to {_LARGEST_DIFFERENCE:g} of the largest, but "
            f"differs by {difference:g}"
        )
