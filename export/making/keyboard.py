"""Keyboards as a kind of bundle: the word list goes beside the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec import UnsetType

from export.bundles.keyboard_bundle import Files
from export.bundles.manifest import VOCABULARY_FILE, Manifest
from export.faces.family import ExportError
from export.releases.release import Release
from models.plan.plan import VocabularySettings
from models.text.vocabulary import SHIPPED_NAME


@dataclass(frozen=True)
class KeyboardKind:
    """A release of next words as a keyboard's bundle.

    ``languages``: BCP 47 tags of the word list; None takes those that the plan says, and knows
    those of the list shipped with sotto.
    """

    manifest: ClassVar = Manifest
    languages: Sequence[str] | None = None

    def beside(self, release: Release) -> tuple[Files, Mapping[str, object]]:
        """Return the word list, its digest and its languages."""
        words, listed = release.vocabulary, release.plan.vocabulary
        if release.plan.task != "next_word" or words is None:
            raise ExportError(
                f"task of the release must be next_word for a keyboard, got {release.plan.task}"
            )
        languages = _languages(listed) if self.languages is None else self.languages
        facts = {"vocabulary_sha256": words.sha256.hex(), "languages": tuple(languages)}
        return {VOCABULARY_FILE: words.to_bytes()}, facts


def _languages(listed: VocabularySettings | None) -> tuple[str, ...]:
    if listed is None:
        return ()
    if listed.name == SHIPPED_NAME:
        return ("en",)
    return () if isinstance(listed.languages, UnsetType) else listed.languages
