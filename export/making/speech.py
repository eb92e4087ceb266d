"""Turn a release of speech into a bundle, and check one against what it says and against torch.

A bundle holds the voice's graphs, a vocoder's if one was given, and a manifest that pins them.
Nothing is written before every graph agreed with torch over shapes that nothing was built for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from export.bundles.files import check_target, write_files
from export.bundles.manifest import PersonalPart
from export.bundles.manifest_entries import FileDigest
from export.bundles.signed_files import signed_files
from export.bundles.speech_bundle import SpeechBundle, load_speech_bundle
from export.bundles.speech_manifest import (
    SPEECH_VERSION,
    SpeechManifest,
    SpeechParity,
    VocoderPart,
)
from export.faces.family import ExportError, Precision
from export.faces.speech import VOCODER_FILE
from export.faces.words import OPSET
from export.making.released_model import held_tensors, personal_names, privacy_of
from export.parity.checked_graph import flat
from export.parity.checked_voice import (
    build_vocoder,
    check_held,
    checked_voice,
    compare_voice,
    recover_vocoder,
    recover_voice,
)
from export.parity.speech import check_vocoder
from export.parity.words import TOLERANCE, is_torch_there
from export.releases.release import Release, parameters_sha256
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.plan.plan import Plan
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings

if TYPE_CHECKING:
    from privacy.identities.party import Identity


@dataclass(frozen=True)
class SpeechChecks:
    """Hold how a bundle compares with torch here.

    Attributes:
        voice: Of the voice's graphs; None where torch is missing.
        vocoder: Of the vocoder's; None without one too.
    """

    voice: SpeechParity | None
    vocoder: SpeechParity | None


def export_speech(
    release: Release,
    target: Path,
    *,
    vocoder: Release | None = None,
    client: str | None = None,
    precision: Precision = "float32",
    signed_with: "Identity | None" = None,
) -> SpeechManifest:
    """Write the bundle of a voice's release, after its graphs agreed with torch.

    Args:
        release: The release, as ``read_release`` gives it.
        target: New folder, or a ``.zip``, which is replaced in one step.
        vocoder: A vocoder's release; None leaves the sound to Griffin-Lim.
        client: Whose voice is to be whole in the bundle; None leaves out what is each person's own.
        precision: How matrices of the voice are stored and multiplied.
        signed_with: The coordinator, to sign the bundle.

    Raises:
        ExportError: If a release is of another task, the vocoder reads other spectrograms, or
            nothing is known of the client.
        ParityError: If a graph and torch disagree, or torch is missing.
        BundleError: If the target cannot be made there.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    settings, plan, record = _voice_of(release), release.plan, release.record
    personal = personal_names(plan) if client is None else ()
    tensors = held_tensors(release, client)
    made = checked_voice(settings, tensors, personal=personal, precision=precision)
    graphs = dict(made.graphs)
    part = None
    if vocoder is not None:
        graphs[VOCODER_FILE], part = _vocoder_part(vocoder, settings)
    manifest = SpeechManifest(
        files={name: FileDigest.of(content) for name, content in graphs.items()},
        model=settings,
        schema_sha256=settings.schema().sha256.hex(),
        parameters_sha256=made.parameters_sha256,
        run=record.run,
        round_number=record.round,
        growth_stage=plan.growth_stage,
        metrics=record.metrics,
        privacy=privacy_of(release),
        opset=OPSET,
        parity=made.parity,
        personal=PersonalPart(method=plan.personalisation.method, tensors=personal)
        if personal
        else None,
        client=client,
        precision=precision,
        rounded_from=made.rounded_from,
        vocoder=part,
    )
    write_files(target, signed_files(manifest.encode(), graphs, signed_with))
    return manifest


def quantise_speech(
    source: Path,
    target: Path,
    *,
    authority: bytes | None = None,
    signed_with: "Identity | None" = None,
) -> SpeechManifest:
    """Write a bundle with the voice's matrices rounded to 8 bits; its vocoder stays as it is.

    Args:
        source: Folder or ``.zip`` of a float32 bundle.
        target: New folder, or a ``.zip``.
        authority: Certificate of the federation's authority, DER; None leaves open who signed.
        signed_with: The coordinator, to sign the new bundle.

    Raises:
        ExportError: If the voice is rounded already, or its graphs hold other weights than it says.
        ParityError: If the rounded graphs and torch disagree, or torch is missing.
        BundleError: If the source is not what its manifest says, or the target cannot be made.
        OSError: If the disk is full or refuses.
    """
    check_target(target)
    bundle = load_speech_bundle(source, authority=authority)
    manifest, settings = bundle.manifest, bundle.manifest.model
    if manifest.precision != "float32":
        raise ExportError(f"{source} must be of float32 to be rounded, got {manifest.precision}")
    personal = tuple(manifest.personal_schema.slices)
    tensors = recover_voice(settings, bundle.graphs, personal=personal)
    check_held(
        flat(tensors, manifest.held_schema), manifest.parameters_sha256, "the voice's graphs"
    )
    made = checked_voice(settings, tensors, personal=personal, precision="int8")
    graphs = {**bundle.graphs, **made.graphs}
    rounded = msgspec.structs.replace(
        manifest,
        format_version=SPEECH_VERSION,
        files={name: FileDigest.of(content) for name, content in graphs.items()},
        parameters_sha256=made.parameters_sha256,
        parity=made.parity,
        precision="int8",
        rounded_from=made.rounded_from,
    )
    write_files(target, signed_files(rounded.encode(), graphs, signed_with))
    return rounded


def verify_speech(
    source: Path, *, authority: bytes | None = None
) -> tuple[SpeechBundle, SpeechChecks]:
    """Check a bundle: digests, signature, that it holds the weights it names, and parity.

    Args:
        source: Folder or ``.zip``.
        authority: Certificate of the federation's authority, DER; None leaves open who signed.

    Returns:
        The bundle, and how it compares with torch here.

    Raises:
        BundleError: If a file is not what the manifest says.
        GraphError: If onnxruntime cannot load a graph.
        ExportError: If the graphs do not hold the parameters that the manifest names.
        ParityError: If torch is there and disagrees.
    """
    bundle = load_speech_bundle(source, authority=authority)
    manifest, graphs = bundle.manifest, bundle.graphs
    personal = tuple(manifest.personal_schema.slices)
    VoiceGraphs(graphs)
    held = recover_voice(manifest.model, graphs, personal=personal)
    check_held(flat(held, manifest.held_schema), manifest.parameters_sha256, "the voice's graphs")
    part, vocoder = manifest.vocoder, None
    if part is not None:
        vocoder = recover_vocoder(part.model, graphs[VOCODER_FILE])
        check_held(vocoder, part.parameters_sha256, VOCODER_FILE)
    if not is_torch_there():
        return bundle, SpeechChecks(None, None)
    voice_parity = compare_voice(
        graphs, manifest.model, held, personal=personal, precision=manifest.precision
    )
    if part is None or vocoder is None:
        return bundle, SpeechChecks(voice_parity, None)
    runner = VocoderRunner(graphs[VOCODER_FILE])
    checked = check_vocoder(runner, part.model, vocoder, tolerance=TOLERANCE)
    return bundle, SpeechChecks(voice_parity, checked)


def _voice_of(release: Release) -> TransformerTtsSettings:
    plan = release.plan
    if plan.task != "speech" or not isinstance(plan.model, TransformerTtsSettings):
        raise ExportError(f"task of the release must be speech for a voice, got {plan.task}")
    return plan.model


def _vocoder_part(release: Release, voice: TransformerTtsSettings) -> tuple[bytes, VocoderPart]:
    """Return a vocoder's graph, which agreed with torch, and what the manifest says of it."""
    plan, record = release.plan, release.record
    settings = _vocoder_settings(plan, voice)
    graph = build_vocoder(settings, release.parameters)
    held = recover_vocoder(settings, graph)
    parity = check_vocoder(VocoderRunner(graph), settings, held, tolerance=TOLERANCE)
    return graph, VocoderPart(
        model=settings,
        parameters_sha256=parameters_sha256(held),
        run=record.run,
        round_number=record.round,
        metrics=record.metrics,
        privacy=privacy_of(release),
        parity=parity,
    )


def _vocoder_settings(plan: Plan, voice: TransformerTtsSettings) -> VocoderSettings:
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
