"""Voices as a kind of bundle: a vocoder goes beside the graphs, if one is given."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from export.bundles.keyboard_bundle import Files
from export.bundles.speech_manifest import SpeechManifest, VocoderPart
from export.faces.family import ExportError
from export.making.released_model import held_tensors, personal_names, privacy_of
from export.parity.checked_graph import make_graphs
from export.releases.release import Release
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings


@dataclass(frozen=True)
class VoiceKind:
    """A release of speech as a voice's bundle; without a vocoder's Griffin-Lim makes the sound."""

    manifest: ClassVar = SpeechManifest
    vocoder: Release | None = None

    def beside(self, release: Release) -> tuple[Files, Mapping[str, object]]:
        """Return the vocoder's graph, which agreed with torch, and what made it; and the growth.

        Raise ParityError if the vocoder's graph and torch disagree, or torch is missing.
        """
        plan = release.plan
        if plan.task != "speech" or not isinstance(plan.model, TransformerTtsSettings):
            raise ExportError(f"task of the release must be speech for a voice, got {plan.task}")
        facts: dict[str, object] = {"growth_stage": plan.growth_stage}
        if self.vocoder is None:
            return {}, facts
        record, settings = self.vocoder.record, _fitting(self.vocoder, plan.model)
        made = make_graphs(settings, held_tensors(self.vocoder, None))
        facts["vocoder"] = VocoderPart(
            model=settings,
            parameters_sha256=made.parameters_sha256,
            run=record.run,
            round_number=record.round,
            metrics=record.metrics,
            privacy=privacy_of(self.vocoder),
            parity=made.parity,
        )
        return made.files, facts


def _fitting(vocoder: Release, voice: TransformerTtsSettings) -> VocoderSettings:
    """Return the settings of a vocoder, if it makes a voice's spectrograms sound for everyone."""
    plan = vocoder.plan
    if not isinstance(plan.model, VocoderSettings):
        raise ExportError(f"task of --vocoder must be vocoder, got {plan.task}")
    if plan.model.mel != voice.mel:
        raise ExportError(
            "the vocoder must read the voice's spectrograms: [model.mel] of the two runs must be "
            f"alike, got {plan.model.mel} for {voice.mel}"
        )
    if personal_names(plan):
        raise ExportError(
            "the vocoder must be one for everyone, got one of method "
            f'"{plan.personalisation.method}"'
        )
    return plan.model
