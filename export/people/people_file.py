"""Hold everybody's embedding and the hypernetwork in one signed file, and make people of them.

If the run's method generates a part of the model, 10,000 people are 10,000 short vectors and one
network, not 10,000 files: a server makes a person's tensors when they are needed. The file is as
personal as all of theirs together: it lies beside the bundle, never in it, and is owner-only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.files import open_files, write_files
from export.bundles.manifest import Manifest
from export.bundles.manifest_entries import BundleError, FileDigest, ManifestBase, decode_versioned
from export.bundles.signed_by import Signer
from export.bundles.signed_files import SIGNED_NAMES, read_checked, read_manifest, signed_files
from export.people.person_fits import check_fits
from export.runtime.word_graph import NextWordGraph
from models.personal.hypernetwork_numpy import generate
from models.settings.hypernetwork import HypernetworkSettings, hypernetwork_schema
from models.vector.codec import named_tensors
from models.vector.tensor_file import NamedArrays, TensorFileError, decode_tensors, encode_tensors

if TYPE_CHECKING:
    from privacy.identities.party import Identity

PEOPLE_VERSION = 1
MAKER_FILE = "people.safetensors"
NAMES_FILE = "clients.txt"
PEOPLE_FILES = (MAKER_FILE, NAMES_FILE)
_PHI, _EMBEDDINGS, _PLACES = "phi", "embeddings", "places/"


class PeopleManifest(ManifestBase, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of everybody's file.

    Attributes:
        format_version: Version of this struct and of the files beside it.
        run: Identifier of the run, 32 hex digits.
        round_number: Round whose release it was made from.
        schema_sha256: Hex digest of the personal tensors' schema, without roles.
        hypernetwork: Widths and kind of output of the hypernetwork.
        files: Digests of the tensors and of the clients' names.
    """

    format_version: int = PEOPLE_VERSION
    kind: Literal["people"] = "people"
    run: str
    round_number: int = msgspec.field(name="round")
    method: str
    schema_sha256: str
    hypernetwork: HypernetworkSettings
    files: dict[str, FileDigest]

    def __post_init__(self) -> None:
        if sorted(self.files) != sorted(PEOPLE_FILES):
            raise ValueError(f"files must be {list(PEOPLE_FILES)}, got {sorted(self.files)}")


@dataclass(frozen=True)
class PeopleFile:
    """Everybody's file, its digests checked.

    Attributes:
        rows: Each client's row of the embeddings, by name.
        embeddings: z_i by rows, float32, shape ``(clients, embedding_size)``.
        phi: The hypernetwork's own parameters, flat float32.
        places: For each input of the graph, where its elements lie in the generated vector.
        signer: The signer; None if nobody signed.
    """

    manifest: PeopleManifest
    rows: Mapping[str, int]
    embeddings: NDArray[np.float32]
    phi: NDArray[np.float32]
    places: Mapping[str, NDArray[np.int64]]
    signer: Signer | None

    def on(self, graph: NextWordGraph, bundle: Manifest) -> "MadePeople":
        """Return what makes people on a bundle's graph; the session is shared.

        Raise BundleError if the file is of another run, method or schema than the bundle, or does
        not make what the graph takes.
        """
        check_fits(self.manifest, bundle, whose="everybody's file")
        generated = bundle.personal_schema
        schema = hypernetwork_schema(self.manifest.hypernetwork, generated)
        shapes = {name: places.shape for name, places in self.places.items()}
        if self.phi.shape != (schema.element_count,) or shapes != dict(graph.personal_shapes):
            raise BundleError(
                f"{MAKER_FILE} must make {sorted(graph.personal_shapes)[:3]} and so on"
            )
        for name, places in self.places.items():
            if not ((places >= 0) & (places < generated.element_count)).all():
                raise BundleError(f"{_PLACES}{name} must lie in 0 to {generated.element_count - 1}")
        return MadePeople(self, graph, named_tensors(schema, self.phi), len(generated.tensors))


@dataclass(frozen=True, eq=False)
class MadePeople:
    """Models of a file's people on one bundle's graph, each equal to itself alone."""

    _file: PeopleFile
    _graph: NextWordGraph
    _phi: Mapping[str, NDArray[np.float32]]
    _tensor_count: int

    def __contains__(self, client: str) -> bool:
        """Return whether the client has an embedding."""
        return client in self._file.rows

    def __len__(self) -> int:
        """Return how many clients have one."""
        return len(self._file.rows)

    @property
    def names(self) -> list[str]:
        """Return everybody who has one, in order of name."""
        return sorted(self._file.rows)

    def graph_of(self, client: str) -> NextWordGraph:
        """Return the graph with a client's tensors, made now.

        Raise KeyError without an embedding, BundleError if what is made is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            made = generate(
                self._phi,
                self._file.manifest.hypernetwork,
                self._file.embeddings[self._file.rows[client]],
                tensor_count=self._tensor_count,
            )
        if not np.isfinite(made).all():
            raise BundleError(f"what is made for {client} must be finite, got NaN or infinity")
        return self._graph.for_person(
            {name: made[places] for name, places in self._file.places.items()}
        )


def encode_people(
    embeddings: Mapping[str, NDArray[np.float32]],
    phi: NDArray[np.float32],
    places: Mapping[str, NDArray[np.int64]],
) -> dict[str, bytes]:
    """Return the contents of everybody's file by name.

    Args:
        embeddings: By client, each of shape ``(embedding_size,)``; at least one.
        phi: The hypernetwork's own parameters, flat.
        places: As in ``PeopleFile``.
    """
    names = sorted(embeddings)
    # Any: floats, and whole numbers for places.
    tensors: dict[str, NDArray[Any]] = {
        _PHI: phi,
        _EMBEDDINGS: np.stack([embeddings[name] for name in names]),
        **{_PLACES + name: held for name, held in places.items()},
    }
    return {
        MAKER_FILE: bytes(encode_tensors(tensors)),
        NAMES_FILE: "".join(name + "\n" for name in names).encode(),
    }


def write_people_file(
    target: Path,
    manifest: PeopleManifest,
    contents: Mapping[str, bytes],
    *,
    signed_with: "Identity | None" = None,
) -> None:
    """Write what ``encode_people`` gave, and its manifest, as ``write_personal_file`` does."""
    write_files(target, signed_files(manifest.encode(), contents, signed_with))


def load_people_file(source: Path, *, authority: bytes | None = None) -> PeopleFile:
    """Read everybody's file; arguments and errors as of ``personal_file.load_personal_file``."""
    files = open_files(source, (*SIGNED_NAMES, *PEOPLE_FILES))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = decode_versioned(
        encoded, PeopleManifest, readable=(PEOPLE_VERSION,), what="people", older="the file"
    )
    try:
        tensors, _ = decode_tensors(read_checked(files, manifest.files, MAKER_FILE))
        names = read_checked(files, manifest.files, NAMES_FILE).decode().splitlines()
    except (TensorFileError, UnicodeDecodeError) as error:
        raise BundleError(f"everybody's file cannot be read: {error}") from None
    phi, embeddings = _floats(tensors, _PHI, 1), _floats(tensors, _EMBEDDINGS, 2)
    shape = (len(names), manifest.hypernetwork.embedding_size)
    if names != sorted(set(names)) or embeddings.shape != shape:
        raise BundleError(
            f"{NAMES_FILE} must name each client once, in order, and {_EMBEDDINGS} have shape "
            f"{shape}, got {embeddings.shape}"
        )
    rows = {name: row for row, name in enumerate(names)}
    return PeopleFile(manifest, rows, embeddings, phi, _places(tensors), signer)


def _floats(tensors: NamedArrays, name: str, axes: int) -> NDArray[np.float32]:
    found = tensors.pop(name, None)
    if found is None or found.dtype != np.float32 or found.ndim != axes:
        raise BundleError(f"{MAKER_FILE} must have {name!r} as float32 with {axes} axes")
    return found.astype(np.float32, copy=False)


def _places(tensors: NamedArrays) -> dict[str, NDArray[np.int64]]:
    found = {}
    for name, array in tensors.items():
        if not name.startswith(_PLACES) or array.dtype != np.int64:
            raise BundleError(f"{MAKER_FILE} must have no tensor {name[:80]!r}, it has one")
        found[name.removeprefix(_PLACES)] = array.astype(np.int64, copy=False)
    return found
