"""Write one person's part of a model as a signed file, and load it onto a bundle's graph.

It is an onnxruntime adapter, a manifest that pins it, and the coordinator's signature over both:
that person's data, written owner-only. The bundle holds what everyone shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar

import msgspec

from export.bundles.files import open_files, write_files
from export.bundles.manifest import CONTENT_FILES, BundleManifest
from export.bundles.manifest_entries import BundleError, FileDigest, ManifestBase, decode_versioned
from export.bundles.signed_by import Signer
from export.bundles.signed_files import (
    LARGEST_MANIFEST_BYTES,
    MANIFEST_FILE,
    SIGNED_NAMES,
    read_checked,
    read_manifest,
    signed_files,
)
from export.faces.speech import VOCODER_FILE, VOICE_FILES
from export.people.adapter import Resting, decode_adapter
from export.people.people_file import PEOPLE_FILES
from export.people.person_fits import check_fits
from export.runtime.word_graph import PersonalInputs
from privacy.foundation.strict_json import decode_json

if TYPE_CHECKING:
    from privacy.identities.party import Identity


class TakesPerson(Protocol):
    """A loaded model that can take a person's tensors: a keyboard's, a classifier's, a voice."""

    @property
    def personal_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of each tensor that is a person's own, by input name."""

    def for_person(self, personal: PersonalInputs) -> Self:
        """Return the model with one person's tensors."""


PersonalGraph = TypeVar("PersonalGraph", bound=TakesPerson)

PERSONAL_VERSION = 1
ADAPTER_FILE = "person.onnx_adapter"

Origin = Literal["generated", "published"]
"""Where a person's tensors come from: the coordinator, or the person's own device."""


class PersonalManifest(ManifestBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of one person's part of a model.

    Attributes:
        format_version: Version of this struct and of the adapter beside it.
        run: Identifier of the run, 32 hex digits.
        round_number: Round whose release it was made with.
        schema_sha256: Hex digest of the personal tensors' schema, without roles.
        resting: How the tensors are kept.
        files: Digest of the adapter.
    """

    format_version: int = PERSONAL_VERSION
    kind: Literal["personal"] = "personal"
    client: str
    origin: Origin
    run: str
    round_number: int = msgspec.field(name="round")
    method: str
    schema_sha256: str
    resting: Resting
    files: dict[str, FileDigest]

    def __post_init__(self) -> None:
        if sorted(self.files) != [ADAPTER_FILE]:
            raise ValueError(f"files must be [{ADAPTER_FILE!r}], got {sorted(self.files)}")


@dataclass(frozen=True)
class PersonalFile:
    """A personal file whose digests fit: the adapter's bytes, and the signer, if anybody signed."""

    manifest: PersonalManifest
    adapter: bytes
    signer: Signer | None

    def on(self, graph: PersonalGraph, bundle: BundleManifest) -> PersonalGraph:
        """Return a bundle's graph with this person's tensors; the session is shared.

        Raise BundleError if the file is of another run, method or schema than the bundle, or the
        adapter does not hold what the graph takes.
        """
        check_fits(self.manifest, bundle, whose=f"{self.manifest.client}'s file")
        shapes = graph.personal_shapes
        return graph.for_person(decode_adapter(self.adapter, shapes, self.manifest.resting))


def write_personal_file(
    target: Path,
    manifest: PersonalManifest,
    adapter: bytes,
    *,
    signed_with: "Identity | None" = None,
) -> None:
    """Write a personal file as a new folder, or as a ``.zip`` that is replaced in one step.

    Raise BundleError if the target cannot be made there, OSError if the disk is full or refuses;
    what
    was there is untouched.
    """
    write_files(target, signed_files(manifest.encode(), {ADAPTER_FILE: adapter}, signed_with))


def load_personal_file(source: Path, *, authority: bytes | None = None) -> PersonalFile:
    """Read a personal file and check its signature, if it has one, and its digest.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER. If given, the file must be signed
            by a coordinator that it certified.

    Raises:
        BundleError: If it is not what its manifest says, the signature does not fit, or it is of
            another format version.
    """
    files = open_files(source, (*SIGNED_NAMES, ADAPTER_FILE))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = decode_versioned(
        encoded, PersonalManifest, readable=(PERSONAL_VERSION,), what="personal", older="the file"
    )
    return PersonalFile(manifest, read_checked(files, manifest.files, ADAPTER_FILE), signer)


def load_file_of(client: str, source: Path, *, authority: bytes | None) -> PersonalFile:
    """Read a personal file that must be one person's: the check that keeps people apart.

    Arguments as of ``load_personal_file``. Raise BundleError if it is another client's, or cannot
    be
    loaded.
    """
    own = load_personal_file(source, authority=authority)
    if own.manifest.client != client:
        raise BundleError(f"{source} must be {client}'s, got {own.manifest.client[:80]}'s")
    return own


def kind_of(source: Path) -> str:
    """Return what a file says it is, such as ``keyboard``, unchecked; BundleError if nothing."""
    personal = (ADAPTER_FILE, *PEOPLE_FILES)
    known = (*SIGNED_NAMES, *personal, *CONTENT_FILES, *VOICE_FILES, VOCODER_FILE)
    files = open_files(source, known)
    encoded = files.read(MANIFEST_FILE, limit_bytes=LARGEST_MANIFEST_BYTES)
    try:
        return decode_json(encoded, _Kind).kind
    except msgspec.DecodeError as error:
        raise BundleError(f"manifest cannot be read: {error}") from None


class _Kind(msgspec.Struct):
    kind: str
