"""Write the ONNX graph of the GRU language model, and read its weights back.

The matrix of a tied model is stored once. Equations and order of the gates are those of the ONNX
operator GRU, version 14; with ``linear_before_reset`` they are those of torch.nn.GRU.
"""

from collections.abc import Collection, Mapping

import numpy as np
import onnx

from export.faces.family import ExportError, Precision
from export.faces.gru_weights import MADE_OF, as_weights, reorder_gates
from export.faces.words import BATCH, NEXT, TIME, TOKENS
from export.graphs.named_weights import held_tensor
from export.graphs.ranking import write_ranking
from export.graphs.writer import Array, GraphWriter
from models.settings.model import GruLmSettings, schema_of

_EMBEDDING = "embedding.weight"
_STATE = "state"


class GruGraph:
    """The graph of one GRU language model."""

    def __init__(self, settings: GruLmSettings) -> None:
        hidden, vocab = settings.hidden_size, settings.vocabulary_size
        self._settings = settings
        self._output = _EMBEDDING if settings.tied else "output.weight"
        self._shapes: dict[str, tuple[int, ...]] = {
            "gru.W": (1, 3 * hidden, hidden),
            "gru.R": (1, 3 * hidden, hidden),
            "gru.B": (1, 6 * hidden),
            _EMBEDDING: (vocab, hidden),
            self._output: (vocab, hidden),
            "output.bias": (vocab,),
        }
        self._torch_shapes = {spec.name: spec.shape for spec in schema_of(settings).tensors}

    def build(
        self,
        tensors: Mapping[str, Array],
        *,
        personal: Collection[str] = (),
        precision: Precision = "float32",
    ) -> onnx.ModelProto:
        """Return the checked graph (``export.faces.words``); dropout is off.

        Its state is ``state``, float32, shape ``(1, batch, hidden)``.

        Args:
            tensors: Parameters that are not personal, by state-dict name, in the schema's shapes.
            personal: Names of those that are inputs; the GRU's own go together.

        Raises:
            ExportError: If a tensor is missing, foreign or of another shape.
        """
        inputs = self._personal_weights(personal)
        # The operator GRU multiplies floats: where its matrices are rounded, steps are written out.
        steps = precision == "int8" and "gru.W" not in inputs
        shapes = self._torch_shapes if steps else self._shapes
        writer = GraphWriter(shapes, personal=inputs, precision=precision)
        writer.input(TOKENS, [BATCH, TIME], np.int64)
        writer.input(_STATE, [1, BATCH, self._settings.hidden_size])
        writer.output(NEXT + _STATE, [1, BATCH, self._settings.hidden_size])
        by_time = writer.node("Transpose", TOKENS, perm=[1, 0])
        embedded = writer.embedded(_EMBEDDING, by_time)
        last = self._steps(writer, embedded) if steps else self._operator(writer, embedded)
        logits = writer.scores(last, self._output, "output.bias")
        write_ranking(writer, logits, self._settings.vocabulary_size)
        return writer.model("gru_lm", dict(tensors) if steps else as_weights(tensors))

    def _operator(self, writer: GraphWriter, embedded: str) -> str:
        """Return the output after the last token, shape ``(batch, hidden)``."""
        writer.nodes(
            "GRU",
            *(embedded, *(writer.weight(name) for name in MADE_OF), "", _STATE),
            named=("", NEXT + _STATE),
            hidden_size=self._settings.hidden_size,
            # torch multiplies by the reset gate after the recurrent bias is added.
            linear_before_reset=1,
        )
        # The state after the last token is also the GRU's output there.
        return writer.node("Squeeze", NEXT + _STATE, writer.integers(0))

    def _steps(self, writer: GraphWriter, embedded: str) -> str:
        """Return the same with rounded matrices and torch's order of the gates."""
        hidden = self._settings.hidden_size
        projected = writer.rounded_product(embedded, "gru.weight_ih_l0", "gru.bias_ih_l0")
        step = writer.body("step.")
        before = step.input("step.before", [BATCH, hidden])
        step.input("step.projected", [BATCH, 3 * hidden])
        step.output("step.after", [BATCH, hidden])
        recurrent = step.rounded_product(before, "gru.weight_hh_l0", "gru.bias_hh_l0")
        reset, update, new = step.nodes("Split", "step.projected", named=3, axis=-1, num_outputs=3)
        own = step.nodes("Split", recurrent, named=3, axis=-1, num_outputs=3)
        reset = step.node("Sigmoid", step.added(reset, own[0]))
        update = step.node("Sigmoid", step.added(update, own[1]))
        new = step.node("Tanh", step.added(new, step.node("Mul", reset, own[2])))
        # h' = n + z (h - n).
        kept = step.node("Mul", update, step.node("Sub", before, new))
        step.node("Add", new, kept, named="step.after")
        first = writer.node("Squeeze", _STATE, writer.integers(0))
        last = writer.node(
            "Scan", first, projected, body=step.inner_graph("step"), num_scan_inputs=1
        )
        writer.node("Unsqueeze", last, writer.integers(0), named=NEXT + _STATE)
        return last

    def recover(
        self, model: onnx.ModelProto, *, personal: Collection[str] = ()
    ) -> dict[str, Array]:
        """Return a graph's parameters; ExportError if one is missing or of another shape."""
        held = {item.name: item for item in model.graph.initializer}
        inputs = self._personal_weights(personal)
        tensors: dict[str, Array] = {}
        for name, shape in self._shapes.items():
            parts = MADE_OF.get(name, (name,))
            if name in inputs:
                continue
            if name in MADE_OF and name not in held:  # Its steps are written out.
                tensors |= {
                    part: held_tensor(held, part, self._torch_shapes[part]) for part in parts
                }
                continue
            weight = held_tensor(held, name, shape)
            if name in MADE_OF:
                stacked = weight.reshape(len(parts), -1, *shape[2:])
                tensors |= dict(zip(parts, map(reorder_gates, stacked), strict=True))
            else:
                tensors[name] = weight
        return tensors

    def _personal_weights(self, personal: Collection[str]) -> set[str]:
        """Return the graph's weights that are made of personal tensors."""
        known = {name for made_of in MADE_OF.values() for name in made_of} | self._shapes.keys()
        foreign = sorted(set(personal) - (known - MADE_OF.keys()))
        if foreign:
            raise ExportError(f"personal tensors must be the model's, got {foreign}")
        found = set()
        for name in self._shapes:
            parts = set(MADE_OF.get(name, (name,)))
            if parts & set(personal) and not parts <= set(personal):
                raise ExportError(f"{sorted(parts)} must be personal together, got {personal}")
            if parts <= set(personal):
                found.add(name)
        return found
