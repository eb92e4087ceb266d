"""What any bundle takes of a release: tensors, which of them are personal, the manifest's facts."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.manifest import MODEL_FILE, Kind, Manifest, PersonalPart, PrivacyStatement
from export.bundles.manifest_entries import FileDigest
from export.faces.family import ExportError
from export.faces.words import OPSET
from export.parity.checked_graph import CheckedGraph
from export.releases.release import Release, parameters_sha256
from models.plan.plan import Plan, plan_schema, released_schema
from models.plan.release_record import Metric
from models.settings.model import schema_of
from models.vector.codec import named_tensors
from models.vector.schema import RELEASED


def personal_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of the tensors that no release holds, in schema order."""
    return tuple(spec.name for spec in plan_schema(plan).tensors if spec.role not in RELEASED)


def held_tensors(release: Release, client: str | None) -> Mapping[str, NDArray[np.float32]]:
    """Return what a graph is to hold: what everyone shares, or all of one client's model."""
    if client is None:
        return named_tensors(released_schema(release.plan), release.parameters)
    from export.releases.client_model import client_parameters  # Loads torch.

    return named_tensors(schema_of(release.plan.model), client_parameters(release, client))


def privacy_of(release: Release) -> PrivacyStatement:
    """Return what a release says of privacy: the promise for its run, and what was spent so far.

    Raises:
        ExportError: If its figures cannot be what was spent.
    """
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


def release_manifest(
    release: Release,
    made: CheckedGraph,
    *,
    kind: Kind,
    beside: Mapping[str, bytes],
    vocabulary_sha256: str,
    languages: Sequence[str],
    personal: tuple[str, ...],
    client: str | None,
) -> Manifest:
    """Return the manifest of a release's bundle.

    Args:
        release: The release.
        made: Its graph.
        kind: What the bundle is.
        beside: The bundle's other files, by name.
        vocabulary_sha256: Hex digest of the word list; empty where there are no words.
        languages: BCP 47 tags of the word list.
        personal: Names of the tensors that the graph takes of each person.
        client: Whose model is whole in the bundle, or None.
    """
    plan, record = release.plan, release.record
    method = plan.personalisation.method
    return Manifest(
        kind=kind,
        files={
            name: FileDigest.of(content)
            for name, content in {MODEL_FILE: made.encoded, **beside}.items()
        },
        model=plan.model,
        schema_sha256=schema_of(plan.model).sha256.hex(),
        parameters_sha256=parameters_sha256(made.parameters),
        vocabulary_sha256=vocabulary_sha256,
        run=record.run,
        round_number=record.round,
        metrics=record.metrics,
        privacy=privacy_of(release),
        languages=tuple(languages),
        opset=OPSET,
        parity=made.parity,
        personal=PersonalPart(method=method, tensors=personal) if personal else None,
        client=client,
        precision=made.precision,
        rounded_from=made.rounded_from,
    )
