"""Make a model's graphs and compare them with torch, in float32 or rounded to 8 bits.

Words and images have one graph, a voice has three, and a vocoder has one beside a voice's. Rounded
graphs are compared twice with a network that has their very weights: computed exactly, when they
must agree as float32 graphs do, and as they ship; the second difference is recorded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.keyboard_bundle import Files
from export.bundles.manifest import MODEL_FILE, BundleManifest, ParityRecord, held_schema
from export.bundles.speech_manifest import VocoderPart
from export.faces.family import ExportError, Precision, missing
from export.faces.personal_inputs import personal_inputs
from export.faces.speech import VOCODER_FILE, VOICE_FILES
from export.graphs.registry import exporter_for, parse_graph
from export.parity.images import check_images
from export.parity.speech import check_vocoder, check_voice
from export.parity.words import TOLERANCE, check_parity, is_torch_there
from export.releases.release import parameters_sha256
from export.runtime.image_graph import ImageGraph
from export.runtime.word_graph import NextWordGraph, PersonalInputs
from export.speaking.voice_graphs import VocoderRunner, VoiceGraphs
from models.settings.image import VitSettings
from models.settings.model import ModelSettings, schema_of
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.codec import FlatVector, named_tensors
from models.vector.schema import Schema

Tensors = Mapping[str, NDArray[np.float32]]

ROUNDED_TOLERANCE = 1.0
"""Largest difference that rounded activations may make to a log-probability, in nats.

Words that matter move by some hundredths; one that is e^-30 likely may move further.
"""

_SEED = 20_220_403

# Softmax is neither flat nor at one place then.
_DRAWN_STD = 0.3


@dataclass(frozen=True)
class CheckedGraphs:
    """Graphs of one model that agreed with torch.

    Attributes:
        files: ONNX bytes by file name.
        parameters_sha256: Hex digest of what they compute with, personal tensors left out.
        rounded_from: Hex digest of the parameters that were rounded; None for float32.
    """

    files: Files
    parameters_sha256: str
    parity: ParityRecord
    precision: Precision
    rounded_from: str | None

    @property
    def facts(self) -> dict[str, object]:
        """Return what a manifest says of them, by field."""
        return {name: value for name, value in vars(self).items() if name != "files"}


class Check(Protocol):
    """The check of loaded graphs against torch."""

    def __call__(self, parameters: FlatVector, /, *, tolerance: float) -> ParityRecord:
        """Compare with torch, given all parameters, a person's too, flat float32 in schema order.

        Raise ParityError if they disagree, or torch is missing.
        """


def make_graphs(
    settings: ModelSettings,
    tensors: Tensors,
    *,
    personal: Collection[str] = (),
    precision: Precision = "float32",
) -> CheckedGraphs:
    """Build a model's graphs and compare them with torch.

    Args:
        tensors: Parameters that are not personal, by state-dict name.
        precision: How matrices are stored and multiplied; a vocoder has float32 alone.

    Raises:
        ExportError: If the family cannot be exported, the tensors are not the model's, or onnx is
            missing.
        ParityError: If graphs and torch disagree, or torch is missing.
    """
    files = build_graphs(settings, tensors, personal=personal, precision=precision)
    held = recover_tensors(settings, files, personal=personal)
    parity = _compare(files, settings, held, personal=personal, precision=precision)
    left = held_schema(settings, personal)
    exact = None if precision == "float32" else parameters_sha256(flat(tensors, left))
    return CheckedGraphs(files, parameters_sha256(flat(held, left)), parity, precision, exact)


def compare_again(
    stated: BundleManifest | VocoderPart,
    files: Files,
    *,
    personal: Collection[str] = (),
    precision: Precision = "float32",
) -> ParityRecord | None:
    """Return how the graphs of a bundle compare with torch here; None if torch is missing.

    Raises:
        GraphError: If onnxruntime cannot load a graph.
        ExportError: If the graphs do not hold the stated parameters.
        ParityError: If torch is there and disagrees.
    """
    load_check(stated.model, files, _inputs(stated.model, drawn_person(stated.model, personal)))
    held = recover_held(stated, files, personal=personal)
    if not is_torch_there():
        return None
    return _compare(files, stated.model, held, personal=personal, precision=precision)


def recover_held(
    stated: BundleManifest | VocoderPart, files: Files, *, personal: Collection[str] = ()
) -> Tensors:
    """Return the tensors in a bundle's graphs by name, without a person's own.

    Raise ExportError if they are not, bit for bit, the stated ones.
    """
    schema = held_schema(stated.model, personal)
    parameters = flat(recover_tensors(stated.model, files, personal=personal), schema)
    found = parameters_sha256(parameters)
    if found != stated.parameters_sha256:
        names = ", ".join(graph_files(stated.model))
        raise ExportError(
            f"{names} must hold parameters {stated.parameters_sha256[:16]}… of the release, got "
            f"{found[:16]}…"
        )
    return named_tensors(schema, parameters)


def _compare(
    files: Files,
    settings: ModelSettings,
    held: Tensors,
    *,
    personal: Collection[str],
    precision: Precision,
) -> ParityRecord:
    """Compare graphs with torch; what is each person's own is drawn for nobody in particular."""
    drawn = drawn_person(settings, personal)
    parameters = flat({**held, **drawn}, schema_of(settings))
    inputs = _inputs(settings, drawn)
    if precision == "float32":
        return load_check(settings, files, inputs)(parameters, tolerance=TOLERANCE)
    from export.graphs.writer import EXACT, at_accuracy  # Loads onnx.

    exact = {
        name: at_accuracy(parse_graph(files[name]), EXACT).SerializeToString()
        for name in graph_files(settings)
    }
    record = load_check(settings, exact, inputs)(parameters, tolerance=TOLERANCE)
    rounded = load_check(settings, files, inputs)(parameters, tolerance=ROUNDED_TOLERANCE)
    return msgspec.structs.replace(record, rounding_difference=rounded.largest_difference)


def graph_files(settings: ModelSettings) -> tuple[str, ...]:
    """Return the names of the files that hold a model's graphs."""
    match settings:
        case TransformerTtsSettings():
            return VOICE_FILES
        case VocoderSettings():
            return (VOCODER_FILE,)
        case _:
            return (MODEL_FILE,)


def build_graphs(
    settings: ModelSettings,
    tensors: Tensors,
    *,
    personal: Collection[str] = (),
    precision: Precision = "float32",
) -> dict[str, bytes]:
    """Return the ONNX bytes of a model's graphs by file name, not compared with anything yet.

    Raise ExportError if the family cannot be exported, the tensors are not the model's, or onnx is
    missing.
    """
    try:
        match settings:
            case TransformerTtsSettings():
                from export.graphs.speech.voice import (
                    SpeechGraphs,  # Loads onnx, as does the vocoder's.
                )

                models = SpeechGraphs(settings).build(
                    tensors, personal=personal, precision=precision
                )
            case VocoderSettings():
                from export.graphs.speech.vocoder import VocoderGraph

                models = {VOCODER_FILE: VocoderGraph(settings).build(tensors)}
            case _:
                exporter = exporter_for(settings)
                model = exporter.build(tensors, personal=personal, precision=precision)
                models = {MODEL_FILE: model}
    except ImportError as error:
        raise missing(error) from None
    return {name: model.SerializeToString(deterministic=True) for name, model in models.items()}


def recover_tensors(
    settings: ModelSettings, files: Files, *, personal: Collection[str] = ()
) -> Tensors:
    """Return the parameters of a model's graphs; ExportError if they are not such graphs."""
    models = {name: parse_graph(files[name]) for name in graph_files(settings)}
    match settings:
        case TransformerTtsSettings():
            from export.graphs.speech.voice import SpeechGraphs

            return SpeechGraphs(settings).recover(models, personal=personal)
        case VocoderSettings():
            from export.graphs.speech.vocoder import VocoderGraph

            return VocoderGraph(settings).recover(models[VOCODER_FILE])
        case _:
            return exporter_for(settings).recover(models[MODEL_FILE], personal=personal)


def load_check(settings: ModelSettings, files: Files, inputs: PersonalInputs) -> Check:
    """Load a model's graphs with a person's inputs, and return their comparison with torch."""
    match settings:
        case TransformerTtsSettings():
            return partial(check_voice, VoiceGraphs(files).for_person(inputs), settings)
        case VocoderSettings():
            return partial(check_vocoder, VocoderRunner(files[VOCODER_FILE]), settings)
        case VitSettings():
            graph = ImageGraph(files[MODEL_FILE]).for_person(inputs)
            return partial(check_images, graph, settings)
        case _:
            words = NextWordGraph(files[MODEL_FILE]).for_person(inputs)
            return partial(check_parity, words, settings)


def flat(tensors: Tensors, schema: Schema) -> FlatVector:
    """Return the tensors of a schema one after the other, float32, shape ``(elements,)``."""
    return np.concatenate(
        [np.zeros(0, dtype=np.float32), *(tensors[name].ravel() for name in schema.slices)]
    )


def drawn_person(
    settings: ModelSettings, personal: Collection[str]
) -> dict[str, NDArray[np.float32]]:
    """Return tensors of nobody in particular, about as large as trained projections."""
    draw = np.random.default_rng(_SEED)
    return {
        spec.name: (_DRAWN_STD * draw.standard_normal(spec.shape)).astype(np.float32)
        for spec in schema_of(settings).tensors
        if spec.name in personal
    }


def _inputs(settings: ModelSettings, drawn: Tensors) -> PersonalInputs:
    """Return drawn tensors as graphs take them; a vocoder takes none."""
    return personal_inputs(settings, drawn) if drawn else {}
