"""Run an exported next-word graph: onnxruntime and numpy, no torch.

The graph may be of any family: whatever it takes beside tokens, k and personal tensors is state,
made of zeros for a fresh text and carried from call to call (``export.faces.words``). If a part of
the model is each person's own, ``for_person`` gives a graph with it; all share one session.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from export.faces.words import (
    BATCH,
    CONTEXT_SIZE,
    DISTRIBUTION,
    LOG_PROBABILITIES,
    NEXT,
    PERSONAL,
    TOKENS,
    TOP_K,
    WORDS,
)
from export.runtime.quiet_onnxruntime import load_onnxruntime

if TYPE_CHECKING:
    import onnxruntime

T = TypeVar("T")

State = Mapping[str, NDArray[np.float32]]

PersonalInputs = Mapping[str, NDArray[np.float32]]
"""One person's tensors by the names of the graph's inputs."""


class GraphError(ValueError):
    """Raised when a graph cannot be loaded or run; the text says why."""


@dataclass(frozen=True)
class Prediction:
    """A graph's prediction of the word after the last token.

    Attributes:
        words: The k likeliest word ids, likeliest first, int64, shape ``(batch, k)``.
        log_probabilities: Theirs, in nats, shape ``(batch, k)``.
        distribution: Those of every word, in nats, shape ``(batch, vocab)``.
        state: The state to pass with the tokens that follow.
    """

    words: NDArray[np.int64]
    log_probabilities: NDArray[np.float32]
    distribution: NDArray[np.float32]
    state: State


class PersonalGraph:
    """One loaded graph of which a part may be each person's own.

    ``personal_shapes``: shape of each tensor of the person's, by input name; none of a graph
    for everyone.
    """

    def __init__(self, graph: bytes, thread_count: int) -> None:
        self._session = load_session(graph, thread_count)
        # Any: extents of axes, or their names.
        self._taken: dict[str, tuple[Any, ...]] = shapes_of(self._session.get_inputs())
        self._given: dict[str, tuple[Any, ...]] = shapes_of(self._session.get_outputs())
        self.personal_shapes: Mapping[str, tuple[int, ...]] = {
            name: shape for name, shape in self._taken.items() if name.startswith(PERSONAL)
        }
        self._personal: PersonalInputs | None = None if self.personal_shapes else {}

    def for_person(self, personal: PersonalInputs) -> Self:
        """Return this graph with a person's float32 tensors; the session is shared.

        Raise GraphError if one is missing, foreign, or of another shape or dtype.
        """
        check_personal(personal, self.personal_shapes)
        own = copy.copy(self)
        own._personal = dict(personal)
        return own

    @property
    def personal_inputs(self) -> PersonalInputs:
        """Return the person's tensors, if any; GraphError if the graph needs some and has none."""
        if self._personal is None:
            raise no_person(self.personal_shapes)
        return self._personal


class NextWordGraph(PersonalGraph):
    """One loaded graph; safe to share between threads, as each call carries its own state.

    ``context_size``: most tokens that state and call may hold together; None for any number.
    """

    def __init__(self, graph: bytes, *, thread_count: int = 1) -> None:
        """Load the graph; a keyboard step is too small to share between threads.

        Raise GraphError if onnxruntime is missing, or the bytes are no such graph.
        """
        super().__init__(graph, thread_count)
        self._state_shapes = {
            name: shape
            for name, shape in self._taken.items()
            if name not in (TOKENS, TOP_K) and name not in self.personal_shapes
        }
        self._outputs = [WORDS, LOG_PROBABILITIES, DISTRIBUTION]
        self._outputs += [NEXT + name for name in self._state_shapes]
        if not {TOKENS, TOP_K} <= set(self._taken) or not set(self._outputs) <= set(self._given):
            raise GraphError(
                f"a next-word graph must take {TOKENS} and {TOP_K} and give {self._outputs}, "
                f"got {sorted(self._taken)} and {sorted(self._given)}"
            )
        try:
            self.vocabulary_size = int(self._given[DISTRIBUTION][1])
            context = self._session.get_modelmeta().custom_metadata_map.get(CONTEXT_SIZE)
            self.context_size: int | None = None if context is None else int(context)
        except (IndexError, TypeError, ValueError):
            raise GraphError(
                f"a next-word graph must say how many words {DISTRIBUTION} has, and "
                f"{CONTEXT_SIZE}, if it does, as a whole number"
            ) from None

    def fresh_state(self, batch_size: int = 1) -> State:
        """Return the state of ``batch_size`` texts that have not begun."""
        return {
            name: np.zeros([_extent(axis, batch_size) for axis in shape], dtype=np.float32)
            for name, shape in self._state_shapes.items()
        }

    def step(self, tokens: NDArray[np.int64], state: State, *, k: int) -> Prediction:
        """Read the tokens and predict the word after the last one.

        Args:
            tokens: Word ids, int64, shape ``(batch, time)``, at least one of each.
            state: The state that the step before gave, or ``fresh_state``.
            k: How many words to rank, in [1, vocab].

        Raises:
            ValueError: If the tokens are not 2-D or empty, an id is no word, or k is out of range.
            GraphError: If onnxruntime fails, or the graph needs a person's tensors and has none.
        """
        self._check(tokens, k)
        # Any: whole numbers and floats.
        feeds: dict[str, NDArray[Any]] = {TOKENS: tokens, TOP_K: np.array([k]), **state}
        feeds |= self.personal_inputs
        found = run_session(self._session, self._outputs, feeds)
        carried = dict(zip(self._state_shapes, found[3:], strict=True))
        return Prediction(found[0], found[1], found[2], carried)

    def _check(self, tokens: NDArray[np.int64], k: int) -> None:
        if tokens.ndim != 2 or not tokens.size:
            raise ValueError(f"tokens must have shape (batch, time), got {tokens.shape}")
        if tokens.min() < 0 or tokens.max() >= self.vocabulary_size:
            raise ValueError(
                f"tokens must be in [0, {self.vocabulary_size}), "
                f"got {tokens.min()} to {tokens.max()}"
            )
        if not 1 <= k <= self.vocabulary_size:
            raise ValueError(f"k must be in [1, {self.vocabulary_size}], got {k}")


def _extent(axis: int | str, batch_size: int) -> int:
    if isinstance(axis, int):
        return axis
    return batch_size if axis == BATCH else 0


def check_personal(personal: PersonalInputs, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise GraphError if a tensor is missing, foreign, or of another shape or dtype."""
    if personal.keys() != shapes.keys():
        odd = sorted(personal.keys() ^ shapes.keys())
        raise GraphError(
            f"a person's tensors must be those the graph takes, too many or too few: {odd[:3]}"
        )
    for name, shape in shapes.items():
        tensor = personal[name]
        if tensor.shape != shape or tensor.dtype != np.float32:
            raise GraphError(
                f"{name} must be float32 of shape {shape}, "
                f"got {tensor.dtype} of shape {tensor.shape}"
            )


def no_person(shapes: Mapping[str, tuple[int, ...]]) -> GraphError:
    """Return the error of a graph that takes a person's tensors and has none."""
    return GraphError(
        "a part of this model is each person's own: give a person's tensors (--person FILE), "
        f"{sorted(shapes)[:3]} and so on"
    )


def load_session(graph: bytes, thread_count: int) -> "onnxruntime.InferenceSession":
    """Return a session of a graph's bytes.

    Raise GraphError if onnxruntime is missing, or the bytes are no graph that it can run.
    """
    try:
        runtime = load_onnxruntime()
    except ImportError:
        raise GraphError("onnxruntime is missing; install sotto[export]") from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = thread_count
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised here; nothing else is to be printed
    try:
        session: onnxruntime.InferenceSession = runtime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )
    except _runtime_errors() as error:
        raise GraphError(f"the graph cannot be loaded: {error}") from None
    # Kept for a change of providers, which none of ours sees: a second copy of every weight.
    session._model_bytes = None
    return session


# Any: onnxruntime's own description of inputs or outputs, and extents of axes.
def shapes_of(described: Any) -> dict[str, tuple[Any, ...]]:
    """Return the shape of each input or output by name; GraphError if a name is no UTF-8."""
    try:
        return {item.name: tuple(item.shape) for item in described}
    except UnicodeDecodeError:
        raise GraphError("the names in a graph must be UTF-8") from None


# Any: arrays of whatever dtype an input or an output has.
def run_session(
    session: "onnxruntime.InferenceSession",
    outputs: Sequence[str],
    feeds: Mapping[str, NDArray[Any]],
) -> list[NDArray[Any]]:
    """Return a graph's outputs; GraphError if onnxruntime fails."""
    return _ran(session.run, outputs, feeds)


def run_on_values(
    session: "onnxruntime.InferenceSession",
    outputs: Sequence[str],
    feeds: "Mapping[str, onnxruntime.OrtValue]",
) -> "list[onnxruntime.OrtValue]":
    """Return outputs that stay in onnxruntime's own memory; GraphError if onnxruntime fails."""
    return _ran(session.run_with_ort_values, outputs, feeds)


def _ran(
    run: Callable[[list[str], dict[str, T]], list[T]],
    outputs: Sequence[str],
    feeds: Mapping[str, T],
) -> list[T]:
    try:
        return run(list(outputs), dict(feeds))
    except _runtime_errors() as error:
        raise GraphError(f"onnxruntime failed: {error}") from None


def _runtime_errors() -> tuple[type[Exception], ...]:
    """Return what onnxruntime raises; its classes share no parent of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    return (
        errors.Fail,
        errors.InvalidArgument,
        errors.InvalidGraph,
        errors.InvalidProtobuf,
        errors.NotImplemented,
        errors.RuntimeException,
        UnicodeDecodeError,  # of a message that names a part of the graph which is no UTF-8
    )
