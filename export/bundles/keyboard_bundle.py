"""Write a bundle and load it back: a graph, its word list and a manifest that pins both.

A bundle is a folder or a .zip (`export.bundles.files`). Loading believes nothing that the manifest
does not pin, and the manifest may be signed by the coordinator. Where a model has learnt from one
person's text the bundle is that person's data, so its files are the owner's alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from export.bundles.files import open_files, write_files
from export.bundles.manifest import (
    CONTENT_FILES,
    MODEL_FILE,
    VOCABULARY_FILE,
    Manifest,
    decode_manifest,
)
from export.bundles.manifest_entries import BundleError
from export.bundles.signed_by import Signer
from export.bundles.signed_files import (
    SIGNED_NAMES,
    check_digest,
    read_checked,
    read_manifest,
    signed_files,
)
from models.plan.word_rules import word_count
from models.text.vocabulary import Vocabulary, decode_vocabulary

if TYPE_CHECKING:
    from privacy.identities.party import Identity


@dataclass(frozen=True)
class Bundle:
    """Hold a bundle whose digests fit.

    Attributes:
        manifest: What it is.
        graph: ONNX bytes.
        vocabulary: The word list of the model's rows.
        signer: Who signed it; None if nobody did.
    """

    manifest: Manifest
    graph: bytes
    vocabulary: Vocabulary
    signer: Signer | None


def write_bundle(
    target: Path,
    manifest: Manifest,
    *,
    graph: bytes,
    vocabulary: Vocabulary,
    signed_with: "Identity | None" = None,
) -> None:
    """Write a bundle, whole or not at all.

    Args:
        target: New folder, or a ``.zip``, which is replaced in one step.
        manifest: With the digests of graph and vocabulary.
        graph: ONNX bytes.
        vocabulary: The word list of the model's rows.
        signed_with: The coordinator, whose signature then covers every file.

    Raises:
        BundleError: If the target cannot be made there, or the manifest is not of these files.
        OSError: If the disk is full or refuses.
    """
    contents = {MODEL_FILE: graph, VOCABULARY_FILE: vocabulary.to_bytes()}
    for name, content in contents.items():
        check_digest(manifest.files, name, content)
    write_files(target, signed_files(manifest.encode(), contents, signed_with))


def load_bundle(source: Path, *, authority: bytes | None = None) -> Bundle:
    """Read a bundle and check its signature, if it has one, and every digest.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER. If given, the bundle must be
            signed by a coordinator that it certified.

    Raises:
        BundleError: If a file is missing or more than there may be, or is not what the manifest
            says; if the signature does not fit; or if the bundle is of another format version.
    """
    files = open_files(source, (*SIGNED_NAMES, *CONTENT_FILES))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = decode_manifest(encoded)
    if manifest.kind != "keyboard":
        raise BundleError(f"{source} must be a keyboard's bundle, got one of kind {manifest.kind}")
    contents = {name: read_checked(files, manifest.files, name) for name in CONTENT_FILES}
    vocabulary = _checked_vocabulary(manifest, contents[VOCABULARY_FILE])
    return Bundle(manifest, contents[MODEL_FILE], vocabulary, signer)


def _checked_vocabulary(manifest: Manifest, encoded: bytes) -> Vocabulary:
    try:
        vocabulary = decode_vocabulary(encoded)
    except ValueError as error:
        raise BundleError(f"{VOCABULARY_FILE}: {error}") from None
    count = word_count(manifest.model)
    if len(vocabulary) != count:
        raise BundleError(
            f"{VOCABULARY_FILE} must have the model's {count} words, got {len(vocabulary)}"
        )
    if vocabulary.sha256.hex() != manifest.vocabulary_sha256:
        raise BundleError(
            f"{VOCABULARY_FILE} must be the list {manifest.vocabulary_sha256[:16]}… of the plan, "
            f"got {vocabulary.sha256.hex()[:16]}…"
        )
    return vocabulary
