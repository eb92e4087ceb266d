"""Put a person's tensors into everyone's bundle: one file with that person's whole model.

They are the part that everyone's graph takes as inputs, or a whole model that the device keeps.

Words and images need no torch for it, so a device does it for its owner. Instead the new graph is
compared with everyone's with the person's tensors as inputs, which agreed with torch when it was
made. A voice's graphs are compared with torch.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from export.bundles.files import check_target
from export.bundles.keyboard_bundle import AnyBundle, Files, write_bundle
from export.bundles.manifest import MODEL_FILE, BundleManifest
from export.bundles.manifest_entries import FileDigest
from export.bundles.speech_manifest import SpeechManifest
from export.faces.family import ExportError
from export.faces.personal_inputs import personal_inputs
from export.making.person_of_device import Tensors, is_whole, own_tensors, own_whole_model
from export.parity.checked_graph import build_graphs, flat, make_graphs, recover_held
from export.parity.images import BATCHES
from export.parity.words import SHAPES, TOLERANCE, ParityError, fitting
from export.people.personal_file import PersonalFile
from export.releases.release import parameters_sha256
from export.runtime.image_graph import ImageGraph
from export.runtime.word_graph import NextWordGraph, PersonalInputs
from models.plan.published_part import PublishedPart
from models.settings.model import schema_of

_SEED = 20_261_122
_ONE_WORD = 1

Compared = Iterable[tuple[NDArray[np.float32], NDArray[np.float32]]]


def export_whole(
    bundle: AnyBundle,
    published: PublishedPart,
    target: Path,
    *,
    generated: PersonalFile | None = None,
) -> BundleManifest:
    """Write a bundle with a person's whole model, from everyone's float32 bundle.

    Its manifest's ``parity`` is that of everyone's graph with torch plus the difference of the new
    graph from that one; a voice's is that of its own graphs. Arguments are those of
    ``own_tensors``.

    Raises:
        BundleError: As ``own_tensors``, or if the target cannot be made there.
        ExportError: As ``own_tensors``, or if the bundle is rounded.
        GraphError: If onnxruntime cannot load a graph.
        ParityError: If the two graphs disagree, or a voice's and torch, or torch is missing for it.
    """
    check_target(target)
    before: BundleManifest = bundle.manifest
    if before.precision != "float32":
        raise ExportError(
            f"a whole model must be made of a float32 bundle, got {before.precision}; a person's "
            "file goes onto this one, or round the whole bundle later"
        )
    takes_nothing = before.personal is None and generated is None
    if takes_nothing or is_whole(before, published):
        own = own_whole_model(before, published)
    else:
        own = own_tensors(before, published, generated)
    held = recover_held(before, bundle.files, personal=before.personal_schema.slices)
    files, facts = _made(bundle, {**held, **own}, own)
    manifest = replace(
        before,
        format_version=before.newest_version,
        files=before.files | {name: FileDigest.of(content) for name, content in files.items()},
        personal=None,
        client=published.record.client,
        **facts,
    )
    write_bundle(target, manifest, {**bundle.files, **files})
    return manifest


def _made(bundle: AnyBundle, tensors: Tensors, own: Tensors) -> tuple[Files, dict[str, object]]:
    """Return the whole model's graphs, and what the manifest says of them."""
    before: BundleManifest = bundle.manifest
    if isinstance(before, SpeechManifest):
        made = make_graphs(before.model, tensors)
        return made.files, made.facts
    graphs = build_graphs(before.model, tensors)
    inputs = personal_inputs(before.model, own)
    difference = _difference(before, graphs[MODEL_FILE], _taking(bundle, own), inputs)
    parity = before.parity
    return graphs, {
        "parameters_sha256": parameters_sha256(flat(tensors, schema_of(before.model))),
        "parity": replace(parity, largest_difference=parity.largest_difference + difference),
    }


def _taking(bundle: AnyBundle, own: Tensors) -> bytes:
    """Return a graph that takes the person's tensors as inputs: everyone's, or one of inputs alone.

    A whole model of a person's own is held by no graph of everyone's; there the same network is
    written with every tensor an input.
    """
    if bundle.manifest.personal is not None:
        return bundle.graph
    return build_graphs(bundle.manifest.model, {}, personal=tuple(own))[MODEL_FILE]


def _difference(
    before: BundleManifest, encoded: bytes, taking: bytes, inputs: PersonalInputs
) -> float:
    """Return how far the new graph is from one with the person's tensors as inputs, in nats."""
    if before.kind == "keyboard":
        compared = _words(NextWordGraph(encoded), NextWordGraph(taking).for_person(inputs))
    else:
        compared = _images(ImageGraph(encoded), ImageGraph(taking).for_person(inputs))
    largest = max(float(np.abs(ours - theirs).max()) for ours, theirs in compared)
    if not largest <= TOLERANCE:
        raise ParityError(
            f"the whole graph must agree with one that takes the person's part to {TOLERANCE} "
            f"nats, differs by {largest:.3g}"
        )
    return largest


def _words(ours: NextWordGraph, theirs: NextWordGraph) -> Compared:
    """Read random words in two calls, the state carried between them."""
    draw = np.random.default_rng(_SEED)
    for batch, time in fitting(SHAPES, ours.context_size):
        tokens = draw.integers(0, ours.vocabulary_size, (batch, 2 * time + 1))
        states = [graph.fresh_state(batch) for graph in (ours, theirs)]
        for part in (tokens[:, :time], tokens[:, time:]):
            found = [
                graph.step(part, state, k=_ONE_WORD)
                for graph, state in zip((ours, theirs), states, strict=True)
            ]
            states = [prediction.state for prediction in found]
            yield found[0].distribution, found[1].distribution


def _images(ours: ImageGraph, theirs: ImageGraph) -> Compared:
    draw = np.random.default_rng(_SEED)
    for batch in BATCHES:
        pixels = draw.integers(0, 256, (batch, *ours.image_shape)).astype(np.uint8)
        yield ours.classify(pixels), theirs.classify(pixels)
