"""Make a model's graph and hold it against torch, in float32 or rounded to 8 bits.

A rounded graph is compared twice with a network that has its very weights: computed exactly,
where it must agree as a float32 graph does, and as it ships, where activations are rounded too. The
second difference is recorded.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from export.bundles.manifest import Manifest, ParityRecord, held_schema
from export.faces.family import ExportError, Precision, exporter_for, parse_graph
from export.faces.personal_inputs import personal_inputs
from export.parity.words import TOLERANCE, is_torch_there
from export.releases.release import parameters_sha256
from export.runtime.word_graph import PersonalInputs
from models.settings.model import ModelSettings, schema_of
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


Check = Callable[[bytes, PersonalInputs, ModelSettings, FlatVector, float], ParityRecord]
"""Hold ONNX bytes with one person's inputs against torch: settings, parameters, largest difference.

It raises ``GraphError`` if onnxruntime cannot load the graph, and ``ParityError`` if it disagrees
or torch is missing.
"""


class HoldsGraph(Protocol):
    """What any bundle holds."""

    @property
    def manifest(self) -> Manifest:
        """What it is."""

    @property
    def graph(self) -> bytes:
        """ONNX bytes."""


@dataclass(frozen=True)
class CheckedGraph:
    """Hold a graph that agreed with torch.

    Attributes:
        encoded: ONNX bytes.
        parameters: What it computes with, personal tensors left out, flat float32 in schema order.
        parity: The comparison.
        precision: How matrices are stored and multiplied.
        rounded_from: SHA-256 of the parameters that were rounded; None for a float32 graph.
    """

    encoded: bytes
    parameters: FlatVector
    parity: ParityRecord
    precision: Precision
    rounded_from: str | None


def make_graph(
    settings: ModelSettings,
    tensors: Tensors,
    *,
    personal: Collection[str],
    precision: Precision,
    check: Check,
) -> CheckedGraph:
    """Build a graph and compare it with torch.

    Args:
        settings: The model's settings.
        tensors: Parameters that are not personal, by state-dict name.
        personal: Names of the others.
        precision: How matrices are stored and multiplied.
        check: Compares it with torch.

    Raises:
        ExportError: If the model is of a family that cannot be exported.
        ParityError: If graph and torch disagree, or torch is missing.
    """
    exporter = exporter_for(settings)
    model = exporter.build(tensors, personal=personal, precision=precision)
    encoded: bytes = model.SerializeToString(deterministic=True)
    held = exporter.recover(model, personal=personal)
    parity = _compare(encoded, settings, held, personal=personal, precision=precision, check=check)
    left = held_schema(settings, personal)
    exact = None if precision == "float32" else parameters_sha256(flat(tensors, left))
    return CheckedGraph(encoded, flat(held, left), parity, precision, exact)


def compare_again(bundle: HoldsGraph, check: Check) -> ParityRecord | None:
    """Return how a bundle's graph compares with torch here; None where torch is missing.

    Raises:
        ExportError: If the graph does not hold the parameters that the manifest names.
        ParityError: If torch is there and disagrees.
    """
    manifest, parameters = bundle.manifest, recover_parameters(bundle)
    if not is_torch_there():
        return None
    held = named_tensors(manifest.held_schema, parameters)
    return _compare(
        bundle.graph,
        manifest.model,
        held,
        personal=tuple(manifest.personal_schema.slices),
        precision=manifest.precision,
        check=check,
    )


def recover_parameters(bundle: HoldsGraph) -> FlatVector:
    """Return the parameters that a bundle's graph holds, flat float32, shape ``(elements,)``.

    What is each person's own is not among them.

    Raises:
        ExportError: If they are not, bit for bit, those that the manifest names.
    """
    manifest = bundle.manifest
    tensors = exporter_for(manifest.model).recover(
        parse_graph(bundle.graph), personal=tuple(manifest.personal_schema.slices)
    )
    parameters = flat(tensors, manifest.held_schema)
    found = parameters_sha256(parameters)
    if found != manifest.parameters_sha256:
        raise ExportError(
            f"the graph must hold parameters {manifest.parameters_sha256[:16]}… of the "
            f"release, got {found[:16]}…"
        )
    return parameters


def _compare(
    encoded: bytes,
    settings: ModelSettings,
    held: Tensors,
    *,
    personal: Collection[str],
    precision: Precision,
    check: Check,
) -> ParityRecord:
    """Hold a graph against torch; what is each person's own is drawn for nobody in particular."""
    drawn = drawn_person(settings, personal)
    parameters = flat({**held, **drawn}, schema_of(settings))
    inputs = personal_inputs(settings, drawn)
    if precision == "float32":
        return check(encoded, inputs, settings, parameters, TOLERANCE)
    from export.graphs.writer import EXACT, at_accuracy  # Loads onnx.

    exact = at_accuracy(parse_graph(encoded), EXACT).SerializeToString()
    record = check(exact, inputs, settings, parameters, TOLERANCE)
    rounded = check(encoded, inputs, settings, parameters, ROUNDED_TOLERANCE)
    return msgspec.structs.replace(record, rounding_difference=rounded.largest_difference)


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
