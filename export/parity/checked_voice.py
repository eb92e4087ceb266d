"""Build the graphs of a voice or a vocoder, read their weights back, hold them against torch."""

from dataclasses import dataclass

import msgspec

from export.bundles.manifest import held_schema
from export.bundles.speech_bundle import Graphs
from export.bundles.speech_manifest import SpeechParity
from export.faces.family import ExportError, Precision, missing, parse_graph
from export.faces.speech import VOICE_FILES
from export.faces.words import PERSONAL
from export.parity.checked_graph import ROUNDED_TOLERANCE, Tensors, drawn_person, flat
from export.parity.speech import check_voice
from export.parity.words import TOLERANCE
from export.releases.release import parameters_sha256
from export.speaking.voice_graphs import VoiceGraphs
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.codec import FlatVector, named_tensors


@dataclass(frozen=True)
class CheckedVoice:
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


def checked_voice(
    settings: TransformerTtsSettings,
    tensors: Tensors,
    *,
    personal: tuple[str, ...],
    precision: Precision,
) -> CheckedVoice:
    """Build a voice's graphs and hold them against torch.

    Args:
        settings: The voice's.
        tensors: Parameters that are not personal, by state-dict name.
        personal: Names of the others.
        precision: How matrices are stored and multiplied.

    Raises:
        ExportError: If the tensors are not the voice's, or onnx is missing.
        ParityError: If graphs and torch disagree, or torch is missing.
    """
    graphs = build_voice(settings, tensors, personal=personal, precision=precision)
    held = recover_voice(settings, graphs, personal=personal)
    parity = compare_voice(graphs, settings, held, personal=personal, precision=precision)
    left = held_schema(settings, personal)
    exact = None if precision == "float32" else parameters_sha256(flat(tensors, left))
    return CheckedVoice(graphs, parameters_sha256(flat(held, left)), parity, exact)


def compare_voice(
    graphs: Graphs,
    settings: TransformerTtsSettings,
    held: Tensors,
    *,
    personal: tuple[str, ...],
    precision: Precision,
) -> SpeechParity:
    """Hold graphs against torch; what is each person's own is drawn for nobody in particular.

    Args:
        graphs: ONNX bytes by file name.
        settings: The voice's.
        held: What the graphs compute with, by state-dict name.
        personal: Names of what they take of each person.
        precision: How they store and multiply matrices.

    Raises:
        GraphError: If onnxruntime cannot load a graph.
        ParityError: If they disagree, or torch is missing.
    """
    drawn = drawn_person(settings, personal)
    parameters = flat({**held, **drawn}, settings.schema())
    inputs = {PERSONAL + name: tensor for name, tensor in drawn.items()}

    def check(some: Graphs, tolerance: float) -> SpeechParity:
        voice = VoiceGraphs(some)
        own = voice.for_person(inputs) if inputs else voice
        return check_voice(own, settings, parameters, tolerance=tolerance)

    if precision == "float32":
        return check(graphs, TOLERANCE)
    from export.graphs.writer import EXACT, at_accuracy  # Loads onnx.

    exact = {
        name: at_accuracy(parse_graph(graphs[name]), EXACT).SerializeToString()
        for name in VOICE_FILES
    }
    rounded = check(graphs, ROUNDED_TOLERANCE)
    return msgspec.structs.replace(
        check(exact, TOLERANCE), rounding_difference=rounded.largest_difference
    )


def check_held(parameters: FlatVector, expected: str, what: str) -> None:
    """Check that graphs hold the parameters of a digest.

    Raises:
        ExportError: If they do not.
    """
    found = parameters_sha256(parameters)
    if found != expected:
        raise ExportError(
            f"{what} must hold parameters {expected[:16]}… of the release, got {found[:16]}…"
        )


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
        from export.graphs.speech.voice import SpeechGraphs  # Loads onnx.
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
    from export.graphs.speech.voice import SpeechGraphs

    return SpeechGraphs(settings).recover(models, personal=personal)


def build_vocoder(settings: VocoderSettings, parameters: FlatVector) -> bytes:
    """Return the ONNX bytes of a vocoder, not compared with anything yet.

    Raises:
        ExportError: If onnx is missing.
    """
    try:
        from export.graphs.speech.vocoder import VocoderGraph  # Loads onnx.
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
    from export.graphs.speech.vocoder import VocoderGraph

    return flat(VocoderGraph(settings).recover(model), settings.schema())
