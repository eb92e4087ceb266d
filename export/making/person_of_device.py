"""Make the file of a person whose device keeps a part of the model: where the device is, or not.

A device makes its owner's file of everyone's bundle and of what `sotto-client publish` wrote,
without torch or onnx: byte for byte what the coordinator would make of the same published part
(`export.making.person_of_release`), without its signature.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.files import check_target
from export.bundles.keyboard_bundle import AnyBundle
from export.bundles.manifest import BundleManifest, personal_schema
from export.bundles.manifest_entries import BundleError, FileDigest
from export.faces.family import ExportError
from export.faces.personal_inputs import personal_inputs
from export.faces.words import PERSONAL
from export.people.adapter import Resting, decode_adapter, encode_adapter
from export.people.personal_file import (
    ADAPTER_FILE,
    Origin,
    PersonalFile,
    PersonalManifest,
    write_personal_file,
)
from models.plan.published_part import PublishedPart
from models.settings.model import ModelSettings, schema_of
from models.vector.schema import Role, Schema

Tensors: TypeAlias = Mapping[str, NDArray[np.float32]]


class PersonOf(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle that a person's file is made for.

    Attributes:
        run: Identifier of the run, 32 hex digits.
        round_number: Round of the release or the bundle.
        method: Personalisation method.
        model: Settings of the model.
        schema: The tensors that are a person's own, without roles.
    """

    run: str
    round_number: int
    method: str
    model: ModelSettings
    schema: Schema


def encode_person(
    made_for: PersonOf, client: str, tensors: Tensors, resting: Resting, *, origin: Origin
) -> tuple[PersonalManifest, bytes]:
    """Return a person's manifest and adapter.

    Args:
        tensors: All that is the person's own, by state-dict name and in schema order.
        resting: How they are stored.

    Raises:
        ExportError: If the model's family cannot be exported.
        BundleError: If a value is too large for float16.
    """
    adapter = encode_adapter(personal_inputs(made_for.model, tensors), resting)
    manifest = PersonalManifest(
        client=client,
        origin=origin,
        run=made_for.run,
        round_number=made_for.round_number,
        method=made_for.method,
        schema_sha256=made_for.schema.sha256.hex(),
        resting=resting,
        files={ADAPTER_FILE: FileDigest.of(adapter)},
    )
    return manifest, adapter


def check_published(
    published: PublishedPart,
    schema: Schema,
    *,
    run: str,
    method: str,
    whose: str,
    is_whole: bool = False,
) -> None:
    """Check that a device published its part of a model.

    Args:
        schema: Every tensor of the model, with its role.
        is_whole: Whether it must hold all of them, whatever their roles.
        run: Identifier of the run, 32 hex digits.
        whose: The model that it is to fit, for the error, such as ``the release's``.

    Raises:
        ExportError: If it is of another run, method or model, or does not hold its tensors.
    """
    record = published.record
    for name, found, expected in (
        ("run", record.run, run),
        ("method", record.method, method),
        ("schema", record.schema_sha256, schema.sha256.hex()),
    ):
        if found != expected:
            raise ExportError(
                f"{name} of {record.client}'s published part must be {expected}, {whose}, "
                f"got {found}"
            )
    own = schema if is_whole else schema.with_roles(Role.PERSONAL)
    shapes = {spec.name: spec.shape for spec in own.tensors}
    found_shapes = {name: tensor.shape for name, tensor in published.tensors.items()}
    if not shapes or found_shapes != shapes:
        raise ExportError(
            f"{record.client}'s published part must hold {sorted(shapes)} in the model's shapes, "
            f"got {sorted(found_shapes)}"
        )


def own_tensors(
    manifest: BundleManifest,
    published: PublishedPart,
    generated: PersonalFile | None = None,
) -> Tensors:
    """Return all that is a person's own under a bundle, in schema order.

    Args:
        published: The part that the person's device published, its signature checked.
        generated: The tensors that the coordinator made for the person.

    Raises:
        BundleError: If the bundle takes nothing of a person, or what was made is of another run,
            round, method or model, or is damaged.
        ExportError: If the published part is of another run, method or model, or one of the two
            parts is missing or of no use.
    """
    part, client = manifest.personal, published.record.client
    if part is None:
        raise BundleError(
            f"the bundle must take a person's tensors, but holds a whole model; {client}'s "
            "published part is of no use to it, but where it is a whole model too: give --whole"
        )
    if is_whole(manifest, published):
        raise ExportError(f"{client} published a whole model of their own: give --whole")
    schema = _with_roles(manifest, published)
    check_published(published, schema, run=manifest.run, method=part.method, whose="the bundle's")
    made = schema.with_roles(Role.GENERATED)
    if bool(made.tensors) != (generated is not None):
        raise ExportError(
            f"the coordinator makes {made.tensors[0].name} for {client}: give the file of "
            "`sotto-export personal SERVER --generated-only` with --generated"
            if made.tensors
            else f"the coordinator makes nothing for {client}: leave --generated out"
        )
    own = dict(published.tensors)
    if generated is not None:
        own |= _made_tensors(generated, manifest, made, client)
    return {name: own[name] for name in part.tensors}


def is_whole(manifest: BundleManifest, published: PublishedPart) -> bool:
    """Return whether a device published a tensor for each one of a bundle's model."""
    return published.tensors.keys() == schema_of(manifest.model).slices.keys()


def own_whole_model(manifest: BundleManifest, published: PublishedPart) -> Tensors:
    """Return a person's own model, in schema order, instead of everyone's and of a person's part.

    Raises:
        ExportError: If what was published is of another run or model, or no whole one.
    """
    schema = _with_roles(manifest, published)
    check_published(
        published,
        schema,
        run=manifest.run,
        method=published.record.method,  # A bundle of a whole model names none.
        whose="the bundle's",
        is_whole=True,
    )
    return {name: published.tensors[name] for name in schema.slices}


def _made_tensors(
    generated: PersonalFile, manifest: BundleManifest, made: Schema, client: str
) -> Tensors:
    """Return what the coordinator made, by state-dict name."""
    found, part = generated.manifest, personal_schema(manifest.model, tuple(made.slices))
    method = "" if manifest.personal is None else manifest.personal.method
    for name, got, expected in (
        ("client", found.client, client),
        ("run", found.run, manifest.run),
        ("round", found.round_number, manifest.round_number),
        ("method", found.method, method),
        ("schema", found.schema_sha256, part.sha256.hex()),
    ):
        if got != expected:
            raise BundleError(f"{name} of the generated part must be {expected}, got {got}")
    # No method makes a GRU's tensors and leaves others to the device: names are the model's.
    shapes = {PERSONAL + spec.name: spec.shape for spec in part.tensors}
    tensors = decode_adapter(generated.adapter, shapes, found.resting)
    return {name.removeprefix(PERSONAL): tensor for name, tensor in tensors.items()}


def _with_roles(manifest: BundleManifest, published: PublishedPart) -> Schema:
    """Return every tensor of a bundle's model with its role: a published tensor is the device's.

    A bundle does not say so, but the digest that the device signed is of another schema if it is
    wrong. Beside a whole model of the device's own, only what is a person's in everyone's is.
    """
    if is_whole(manifest, published):
        own = dict.fromkeys(manifest.personal_schema.slices, Role.PERSONAL)
    else:
        own = dict.fromkeys(manifest.personal_schema.slices, Role.GENERATED)
        own |= dict.fromkeys(published.tensors, Role.PERSONAL)
    return Schema(
        tuple(
            msgspec.structs.replace(spec, role=own.get(spec.name, spec.role))
            for spec in schema_of(manifest.model).tensors
        )
    )


def export_own(
    bundle: AnyBundle,
    published: PublishedPart,
    target: Path,
    *,
    generated: PersonalFile | None = None,
    resting: Resting = "float32",
) -> PersonalManifest:
    """Write a person's file from everyone's bundle and what the person's device published.

    Arguments and errors are those of ``own_tensors``, and BundleError if the target cannot be made;
    signatures were checked before.
    """
    check_target(target)
    before = bundle.manifest
    tensors = own_tensors(before, published, generated)
    made_for = PersonOf(
        run=before.run,
        round_number=before.round_number,
        method=published.record.method,
        model=before.model,
        schema=before.personal_schema,
    )
    client = published.record.client
    manifest, adapter = encode_person(made_for, client, tensors, resting, origin="published")
    write_personal_file(target, manifest, adapter)
    return manifest
