"""Classifiers as a kind of bundle: nothing goes beside the graph (`export.faces.images`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from export.bundles.keyboard_bundle import Files
from export.bundles.manifest import Manifest
from export.faces.family import ExportError
from export.releases.release import Release
from models.plan.roles import has_balanced_head
from models.settings.model import ImageModelSettings
from models.settings.personalisation import PFedGpSettings


@dataclass(frozen=True)
class ClassifierKind:
    """A release of image classification as a classifier's bundle."""

    manifest: ClassVar = Manifest

    def beside(self, release: Release) -> tuple[Files, Mapping[str, object]]:
        """Return no files, and that there are no words."""
        plan, settings = release.plan, release.plan.personalisation
        is_classifier = isinstance(plan.model, ImageModelSettings)
        if plan.task != "image_classification" or not is_classifier:
            raise ExportError(
                "task of the release must be image_classification for a classifier, got "
                f"{plan.task}"
            )
        if has_balanced_head(settings) or isinstance(settings, PFedGpSettings):
            raise ExportError(
                f'method "{settings.method}" with these settings classifies by more than the '
                "network; it cannot be exported"
            )
        return {}, {"kind": "image", "vocabulary_sha256": "", "languages": ()}
