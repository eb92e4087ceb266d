"""Say to the page what a person's keyboard is, and hand over their tensors."""

from collections.abc import Mapping

from export.manifest import Manifest
from export.personal_ranking import PersonalRanking
from export.runtime import NextWordGraph
from models.tensor_file import encode_tensors

PERSONAL_FILE = "personal.safetensors"


def describe(
    version: str,
    manifest: Manifest,
    *,
    graph: NextWordGraph,
    ranking: PersonalRanking,
    has_own_part: bool,
) -> dict[str, object]:
    """Return what the page needs to know of one version.

    Args:
        version: Its name.
        manifest: What it is.
        graph: Its loaded graph.
        ranking: What ranks its words; says which are never suggested.
        has_own_part: Whether there is a file of the person's own part.
    """
    personal: Mapping[str, object] | None = None
    if manifest.personal is not None:
        personal = {"method": manifest.personal.method, "available": has_own_part}
    return {
        "version": version,
        "round": manifest.round_number,
        "run": manifest.run,
        "languages": manifest.languages,
        "metrics": manifest.metrics,
        "privacy": manifest.privacy,
        "privacy_spent": manifest.privacy.spent_after(manifest.round_number),
        "precision": manifest.precision,
        "words": graph.vocabulary_size,
        "context_size": graph.context_size,
        "never": sorted(ranking.never),
        "files": manifest.files,
        "personal": personal,
    }


def personal_file(graph: NextWordGraph) -> bytes:
    """Return a person's tensors as a safetensors file, float32, named as the graph's inputs."""
    return bytes(encode_tensors(graph.personal_inputs))
