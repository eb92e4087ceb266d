"""Describe a person's keyboard and voice to the page, and hand over their tensors."""

import hashlib
from collections.abc import Mapping, Sequence

from export.bundles.manifest import Manifest
from export.bundles.speech_manifest import SpeechManifest
from export.page.page_files import word_lists
from export.runtime.personal_ranking import PersonalRanking
from export.runtime.word_graph import NextWordGraph
from models.vector.tensor_file import encode_tensors

PERSONAL_FILE = "personal.safetensors"


def describe(
    version: str,
    manifest: Manifest,
    *,
    graph: NextWordGraph,
    ranking: PersonalRanking,
    open_ranking: PersonalRanking,
    own_part: bytes | None,
) -> dict[str, object]:
    """Return what the page needs to know of one version.

    Args:
        ranking: The ranking of its words; says which are never suggested and which are never
            corrected.
        open_ranking: The ranking for a person who allows offensive words; says which those are.
        own_part: The bytes of `personal_file`; None if there is no own part.
    """
    sha256 = None if own_part is None else hashlib.sha256(own_part).hexdigest()
    own = {"available": own_part is not None, "sha256": sha256}
    return {
        **_facts(version, manifest, own=own),
        "words": graph.vocabulary_size,
        "context_size": graph.context_size,
        "word_lists": word_lists(manifest.languages),
        **described_rules(ranking, open_ranking),
        "files": manifest.files,
    }


def described_rules(ranking: PersonalRanking, open_ranking: PersonalRanking) -> dict[str, object]:
    """Return rows never suggested, words neither suggested nor corrected, and offensive rows.

    Args:
        open_ranking: The ranking for a person who allows offensive words.
    """
    return {
        "never": sorted(ranking.never),
        "blocked": sorted(ranking.blocked),
        "offensive": sorted(ranking.never - open_ranking.never),
    }


def describe_voice(
    version: str, manifest: SpeechManifest, *, voices: Sequence[str], has_own_part: bool
) -> dict[str, object]:
    """Return what the page needs to know of the voice, and the ``voices`` open to the person."""
    part, vocoder = manifest.vocoder, None
    if part is not None:
        spent = part.privacy.spent_after(part.round_number)
        vocoder = {
            "round": part.round_number,
            "run": part.run,
            "privacy": part.privacy,
            "privacy_spent": spent,
        }
    return {
        **_facts(version, manifest, own={"available": has_own_part}),
        "mel": manifest.model.mel,
        "vocoder": vocoder,
        "voices": voices,
    }


def _facts(
    version: str, manifest: Manifest | SpeechManifest, *, own: Mapping[str, object]
) -> dict[str, object]:
    """Return the facts of words and voices alike, and of the person's own part ``own``."""
    personal: Mapping[str, object] | None = None
    if manifest.personal is not None:
        personal = {"method": manifest.personal.method, **own}
    return {
        "version": version,
        "round": manifest.round_number,
        "run": manifest.run,
        "languages": manifest.languages,
        "metrics": manifest.metrics,
        "privacy": manifest.privacy,
        "privacy_spent": manifest.privacy.spent_after(manifest.round_number),
        "precision": manifest.precision,
        "personal": personal,
    }


def personal_file(graph: NextWordGraph) -> bytes:
    """Return a person's tensors as a safetensors file, float32, named as the graph's inputs."""
    return bytes(encode_tensors(graph.personal_inputs))
