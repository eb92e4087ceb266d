"""Write a plugin's model as one ONNX file, after it agreed with torch.

The plugin builds the graph and gives inputs to try it with. What is written says in its metadata
which release it is of, what that promises, and by which digest its parameters are known.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from export.faces.family import ExportError, missing
from export.making.released_model import personal_names
from export.parity.words import ParityError, check_distributions, torch_network
from export.releases.release import Release, parameters_sha256
from export.runtime.quiet_onnxruntime import load_onnxruntime
from models.plugins.loaded import part_of
from models.plugins.names import PluginError
from models.plugins.parts import Part
from models.settings.model import schema_of
from models.settings.plugin import PluginModel, broken_part
from models.vector.codec import named_tensors
from privacy.foundation.atomic_files import READABLE, write_atomically

COUNTS = (1, 2, 3, 5, 8)
"""Examples that are compared in one call."""

TOLERANCE = 1e-4
"""Largest difference of two outputs: float32 sums in another order."""

_SEED = 20_260_101


@runtime_checkable
class GraphPart(Protocol):
    """A plugin's writer of graphs in ``sotto.export``, an object without state."""

    # Any: settings are the plugin's own.
    def build(self, settings: Any, tensors: Mapping[str, NDArray[np.float32]]) -> bytes:
        """Return a graph as ONNX bytes.

        Its inputs are those of the network's ``forward``, by name, and its one output is what that
        returns; the first axis of each is open. ``tensors`` are by state-dict name.
        """

    def examples(
        self, settings: Any, count: int, draw: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Return drawn inputs of the graph by name, ``count`` examples."""


def export_graph(release: Release, target: Path) -> float:
    """Write a release's model to a file; return by how much graph and torch differ at most.

    Raises:
        PluginError: If the plugin has no graph for the family, or is broken.
        ExportError: If the model is no plugin's, or is not whole in the release.
        ParityError: If graph and torch disagree, or torch is missing.
        OSError: If the disk refuses; an existing target is untouched.
    """
    model = release.plan.model
    if not isinstance(model, PluginModel):
        raise ExportError(
            f"model family {model.family_name} is sotto's own; use sotto-export keyboard, image or "
            "speech"
        )
    if personal_names(release.plan):
        raise ExportError(
            f'method "{release.plan.personalisation.method}" releases no whole model, so there is '
            "none to export for everyone"
        )
    part = part_of(Part.EXPORT, model.name)
    if isinstance(part, type) or not isinstance(part, GraphPart):
        raise PluginError(
            f"{model.name} of {Part.EXPORT} must be an object that is a GraphPart of "
            f"export.making.plugin_graph, got {part!r}"
        )
    tensors = named_tensors(schema_of(model), release.parameters)
    try:
        graph = part.build(model.own, tensors)
    except ImportError as error:
        raise missing(error) from None
    except Exception as error:
        raise broken_part(Part.EXPORT, model.name, error) from error
    largest = _compared(release, model, part, graph)
    write_atomically(target, _described(graph, release), mode=READABLE)
    return largest


def _compared(release: Release, model: PluginModel, part: GraphPart, graph: bytes) -> float:
    network = torch_network(model, release.parameters)
    # Only now: ``torch_network`` says what is missing.
    import torch

    draw, largest = np.random.default_rng(_SEED), 0.0
    try:
        session = load_onnxruntime().InferenceSession(graph, providers=["CPUExecutionProvider"])
        for count in COUNTS:
            inputs = dict(part.examples(model.own, count, draw))
            (found,) = session.run(None, inputs)
            with torch.inference_mode():
                expected = network(**{name: torch.from_numpy(x) for name, x in inputs.items()})
            what = f"{count} examples"
            largest = max(largest, check_distributions(found, expected.numpy(), TOLERANCE, what))
    except ImportError as error:
        raise missing(error) from None
    except ParityError:
        raise
    except Exception as error:
        raise broken_part(Part.EXPORT, model.name, error) from error
    return largest


def _described(graph: bytes, release: Release) -> bytes:
    """Return the graph with what it is of in its metadata."""
    import onnx

    model = onnx.load_model_from_string(graph)
    facts = {
        "sotto.run": release.record.run,
        "sotto.round": str(release.record.round),
        "sotto.plugins": " ".join(release.plan.named_plugins),
        "sotto.schema_sha256": schema_of(release.plan.model).sha256.hex(),
        "sotto.parameters_sha256": parameters_sha256(release.parameters),
        "sotto.guarantee": release.record.guarantee,
    }
    onnx.helper.set_model_props(model, facts)
    encoded: bytes = model.SerializeToString(deterministic=True)
    return encoded
