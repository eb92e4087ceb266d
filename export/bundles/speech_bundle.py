"""Read a speech bundle: a voice's graphs, a vocoder's if there is one, a manifest that pins them.

Nothing is believed that the manifest does not pin, and the coordinator may have signed it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from export.bundles.files import open_files
from export.bundles.manifest_entries import BundleError
from export.bundles.signed_by import Signer
from export.bundles.signed_files import SIGNED_NAMES, read_checked, read_manifest
from export.bundles.speech_manifest import SpeechManifest, decode_speech_manifest
from export.faces.speech import VOCODER_FILE, VOICE_FILES

Graphs = Mapping[str, bytes]


@dataclass(frozen=True)
class SpeechBundle:
    """Hold a speech bundle whose digests fit.

    Attributes:
        manifest: What it is.
        graphs: ONNX bytes by file name.
        signer: Who signed it; None if nobody did.
    """

    manifest: SpeechManifest
    graphs: Graphs
    signer: Signer | None


def load_speech_bundle(source: Path, *, authority: bytes | None = None) -> SpeechBundle:
    """Read a speech bundle and check its signature, if it has one, and every digest.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER. If given, the bundle must be
            signed by a coordinator that it certified.

    Raises:
        BundleError: If it is not what its manifest says, no voice's, or of another format version;
            or if the signature does not fit.
    """
    files = open_files(source, (*SIGNED_NAMES, *VOICE_FILES, VOCODER_FILE))
    encoded, signer = read_manifest(files, authority=authority)
    manifest = decode_speech_manifest(encoded)
    if files.names - {*SIGNED_NAMES, *manifest.content_files}:
        raise BundleError(f"{VOCODER_FILE} must be in the manifest to be in the bundle")
    graphs = {name: read_checked(files, manifest.files, name) for name in manifest.content_files}
    return SpeechBundle(manifest, graphs, signer)
