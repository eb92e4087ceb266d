"""Turn a release of speech into a bundle, and check one against what it says and against torch.

A bundle holds the voice's graphs, a vocoder's if one was given, and a manifest that pins them.
Nothing is written before every graph agreed with torch over shapes that nothing was built for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from export.bundle_files import check_target, write_files
from export.checked_graph import ROUNDED_TOLERANCE, Tensors, drawn_person, flat
from export.exporter import ExportError, Precision, missing, parse_graph
from export.graph_face import OPSET, PERSONAL
from export.manifest import (
    FileDigest,
    PersonalPart,
    PrivacyStatement,
    held_schema,
)
from export.parity import TOLERANCE, is_torch_there
from export.release import Release, parameters_sha256
from export.released_model import held_tensors, personal_names
from export.signed_files import signed_files
from export.speech_bundle import Graphs, SpeechBundle, load_speech_bundle
from export.speech_face import VOCODER_FILE, VOICE_FILES
from export.speech_manifest import (
    SpeechManifest,
    SpeechParity,
    VocoderPart,
)
from export.speech_parity import check_vocoder, check_voice
from export.speech_runtime import VocoderRunner, VoiceGraphs
from models.codec import FlatVector, named_tensors
from models.plan import Plan
from models.transformer_tts_settings import TransformerTtsSettings
from models.vocoder_settings import VocoderSettings

if TYPE_CHECKING:
    from privacy.identity import Identity


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
    made = _checked_voice(settings, tensors, personal=personal, precision=precision)
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
        privacy=_privacy(release),
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
    _check_held(
        flat(tensors, manifest.held_schema), manifest.parameters_sha256, "the voice's graphs"
    )
    made = _checked_voice(settings, tensors, personal=personal, precision="int8")
    graphs = {**bundle.graphs, **made.graphs}
    rounded = msgspec.structs.replace(
        manifest,
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
    _check_held(flat(held, manifest.held_schema), manifest.parameters_sha256, "the voice's graphs")
    part, vocoder = manifest.vocoder, None
    if part is not None:
        vocoder = recover_vocoder(part.model, graphs[VOCODER_FILE])
        _check_held(vocoder, part.parameters_sha256, VOCODER_FILE)
    if not is_torch_there():
        return bundle, SpeechChecks(None, None)
    voice_parity = _compare_voice(
        graphs, manifest.model, held, personal=personal, precision=manifest.precision
    )
    if part is None or vocoder is None:
        return bundle, SpeechChecks(voice_parity, None)
    runner = VocoderRunner(graphs[VOCODER_FILE])
    checked = check_vocoder(runner, part.model, vocoder, tolerance=TOLERANCE)
    return bundle, SpeechChecks(voice_parity, checked)


def build_voice(
    settings: TransformerTtsSettings,
    tensors: Tensors,
    *,
    personal: tuple[str, ...] = (),
    precision: Precision = "float32",
) -> dict[str, bytes]:
    """Return the ONNX bytes of a voice's graphs by file name, not compared with anything yet.

    Raises:
        ExportError: If the tensors are not the voice's, or onnx is missing.
    """
    try:
        from export.speech_graphs import SpeechGraphs  # Loads onnx.
    except ImportError as error:
        raise missing(error) from None
    models = SpeechGraphs(settings).build(tensors, personal=personal, precision=precision)
    return {name: model.SerializeToString(deterministic=True) for name, model in models.items()}


def recover_voice(
    settings: TransformerTtsSettings, graphs: Graphs, *, personal: tuple[str, ...]
) -> Tensors:
    """Return the parameters that a voice's graphs compute with, by state-dict name.

    Raises:
        ExportError: If they are no graphs of such a voice, or onnx is missing.
    """
    models = {name: parse_graph(graphs[name]) for name in VOICE_FILES}
    from export.speech_graphs import SpeechGraphs

    return SpeechGraphs(settings).recover(models, personal=personal)


def build_vocoder(settings: VocoderSettings, parameters: FlatVector) -> bytes:
    """Return the ONNX bytes of a vocoder, not compared with anything yet.

    Raises:
        ExportError: If onnx is missing.
    """
    try:
        from export.vocoder_graph import VocoderGraph  # Loads onnx.
    except ImportError as error:
        raise missing(error) from None
    model = VocoderGraph(settings).build(named_tensors(settings.schema(), parameters))
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded


def recover_vocoder(settings: VocoderSettings, graph: bytes) -> FlatVector:
    """Return the parameters that a vocoder's graph computes with, flat float32.

    Raises:
        ExportError: If it is no graph of such a vocoder, or onnx is missing.
    """
    model = parse_graph(graph)
    from export.vocoder_graph import VocoderGraph

    return flat(VocoderGraph(settings).recover(model), settings.schema())


@dataclass(frozen=True)
class _CheckedVoice:
    """Hold a voice's graphs that agreed with torch.

    Attributes:
        graphs: ONNX bytes by file name.
        parameters_sha256: Hex digest of what they compute with, personal tensors left out.
        parity: The comparison.
        rounded_from: Hex digest of what was rounded; None for float32.
    """

    graphs: Graphs
    parameters_sha256: str
    parity: SpeechParity
    rounded_from: str | None


def _checked_voice(
    settings: TransformerTtsSettings,
    tensors: Tensors,
    *,
    personal: tuple[str, ...],
    precision: Precision,
) -> _CheckedVoice:
    """Build a voice's graphs and hold them against torch."""
    graphs = build_voice(settings, tensors, personal=personal, precision=precision)
    held = recover_voice(settings, graphs, personal=personal)
    parity = _compare_voice(graphs, settings, held, personal=personal, precision=precision)
    left = held_schema(settings, personal)
    exact = None if precision == "float32" else parameters_sha256(flat(tensors, left))
    return _CheckedVoice(graphs, parameters_sha256(flat(held, left)), parity, exact)


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
        privacy=_privacy(release),
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


def _privacy(release: Release) -> PrivacyStatement:
    mode = str(release.plan.privacy.__struct_config__.tag)
    return PrivacyStatement(mode=mode, guarantee=release.record.guarantee)


def _check_held(parameters: FlatVector, expected: str, what: str) -> None:
    found = parameters_sha256(parameters)
    if found != expected:
        raise ExportError(
            f"{what} must hold parameters {expected[:16]}… of the release, got {found[:16]}…"
        )


def _compare_voice(
    graphs: Graphs,
    settings: TransformerTtsSettings,
    held: Tensors,
    *,
    personal: tuple[str, ...],
    precision: Precision,
) -> SpeechParity:
    """Hold graphs against torch; what is each person's own is drawn for nobody in particular."""
    drawn = drawn_person(settings, personal)
    parameters = flat({**held, **drawn}, settings.schema())
    inputs = {PERSONAL + name: tensor for name, tensor in drawn.items()}

    def check(some: Graphs, tolerance: float) -> SpeechParity:
        voice = VoiceGraphs(some)
        own = voice.for_person(inputs) if inputs else voice
        return check_voice(own, settings, parameters, tolerance=tolerance)

    if precision == "float32":
        return check(graphs, TOLERANCE)
    from export.graph_writer import EXACT, at_accuracy  # Loads onnx.

    exact = {
        name: at_accuracy(parse_graph(graphs[name]), EXACT).SerializeToString()
        for name in VOICE_FILES
    }
    rounded = check(graphs, ROUNDED_TOLERANCE)
    return msgspec.structs.replace(
        check(exact, TOLERANCE), rounding_difference=rounded.largest_difference
    )
