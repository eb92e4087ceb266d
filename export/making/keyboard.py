"""Keyboards as a kind of bundle: the word list goes beside the graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from export.bundles.keyboard_bundle import Files
from export.bundles.manifest import VOCABULARY_FILE, Manifest
from export.faces.family import ExportError
from export.releases.release import Release
from models.text.vocabulary import SHIPPED_NAME


@dataclass(frozen=True)
class KeyboardKind:
    """A release of next words as a keyboard's bundle.

    ``languages``: BCP 47 tags of the word list; None knows those of the list shipped with sotto.
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
        languages = self.languages
        if languages is None:
            is_shipped = listed is not None and listed.name == SHIPPED_NAME
            languages = ("en",) if is_shipped else ()
        facts = {"vocabulary_sha256": words.sha256.hex(), "languages": tuple(languages)}
        return {VOCABULARY_FILE: words.to_bytes()}, facts
