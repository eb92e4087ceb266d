"""Read bundles: the graphs of a model, what lies beside them, and a manifest that pins every file.

Loading believes only what the manifest pins, and the coordinator may have signed the manifest. A
model that learnt from one person's text makes the bundle that person's data: its files are
owner-only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from export.bundles.files import open_files, write_files
from export.bundles.manifest import (
    CONTENT_FILES,
    MODEL_FILE,
    VOCABULARY_FILE,
    BundleManifest,
    Manifest,
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
from export.bundles.speech_manifest import SpeechManifest
from export.faces.speech import VOCODER_FILE, VOICE_FILES
from models.plan.word_rules import word_count
from models.text.vocabulary import Vocabulary, decode_vocabulary

if TYPE_CHECKING:
    from privacy.identities.party import Identity

M = TypeVar("M", bound=BundleManifest)

Files: TypeAlias = Mapping[str, bytes]
"""Contents by file name."""


@dataclass(frozen=True)
class BundleOf(Generic[M]):
    """A bundle whose digests fit; ``signer`` is None if nobody signed it."""

    manifest: M
    files: Files
    signer: Signer | None

    @property
    def graph(self) -> bytes:
        """Return the ONNX bytes of a keyboard or a classifier; a voice has several graphs."""
        return self.files[MODEL_FILE]


@dataclass(frozen=True)
class Bundle(BundleOf[Manifest]):
    """A keyboard's bundle, with the word list of the model's rows."""

    vocabulary: Vocabulary


ImageBundle: TypeAlias = BundleOf[Manifest]
SpeechBundle: TypeAlias = BundleOf[SpeechManifest]
AnyBundle: TypeAlias = BundleOf[Manifest] | BundleOf[SpeechManifest]


def write_bundle(
    target: Path,
    manifest: BundleManifest,
    files: Files,
    *,
    signed_with: "Identity | None" = None,
) -> None:
    """Write a bundle, whole or not at all; the coordinator's signature covers every file.

    Raise BundleError if the target cannot be made there, or the manifest is not of these files.
    """
    for name, content in files.items():
        check_digest(manifest.files, name, content)
    write_files(target, signed_files(manifest.encode(), files, signed_with))


def load_bundle(source: Path, *, authority: bytes | None = None) -> Bundle:
    """Read a keyboard's bundle and check its signature, if it has one, and every digest.

    If ``authority`` is given, the federation's certificate, DER, a coordinator that it certified
    must have signed the bundle.

    Raises:
        BundleError: If a file is missing, foreign or not what the manifest says, the signature does
            not fit, or the bundle is of another kind or format version.
    """
    found = _read(source, "keyboard", Manifest, CONTENT_FILES, authority)
    vocabulary = _checked_vocabulary(found.manifest, found.files[VOCABULARY_FILE])
    return Bundle(found.manifest, found.files, found.signer, vocabulary)


def load_image_bundle(source: Path, *, authority: bytes | None = None) -> ImageBundle:
    """Read a classifier's bundle; arguments and errors as of ``load_bundle``."""
    return _read(source, "image", Manifest, (MODEL_FILE,), authority)


def load_speech_bundle(source: Path, *, authority: bytes | None = None) -> SpeechBundle:
    """Read a voice's bundle; arguments and errors as of ``load_bundle``."""
    return _read(source, "speech", SpeechManifest, (*VOICE_FILES, VOCODER_FILE), authority)


def _read(
    source: Path, kind: str, stated: type[M], names: Sequence[str], authority: bytes | None
) -> BundleOf[M]:
    """Read a bundle of a kind, which may hold files of these names."""
    files = open_files(source, (*SIGNED_NAMES, *names))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = stated.decode(encoded)
    if manifest.kind != kind:
        raise BundleError(
            f"{source} must be a bundle of kind {kind}, got one of kind {manifest.kind}"
        )
    unpinned = files.names - {*SIGNED_NAMES, *manifest.content_files}
    if unpinned:
        raise BundleError(f"{min(unpinned)} must be in the manifest to be in the bundle")
    contents = {name: read_checked(files, manifest.files, name) for name in manifest.content_files}
    return BundleOf(manifest, contents, signer)


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
