"""Compare an exported graph of words with torch, over shapes that no export ever saw.

Both read the same random words in two calls with the state carried between them, so that a frozen
axis, a gate in the wrong place or a dropped state shows.
"""

import importlib.util
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from export.bundles.manifest import ParityRecord
from export.runtime.word_graph import NextWordGraph, Prediction
from models.settings.model import ModelSettings, schema_of
from models.vector.codec import FlatVector

if TYPE_CHECKING:
    from models.networks.registry import Network, WordNetwork

Shapes = tuple[tuple[int, int], ...]
_Distributions = NDArray[np.float32]

SHAPES: Shapes = ((1, 1), (1, 9), (2, 1), (3, 4), (5, 2), (2, 17), (7, 3))
"""The ``(batch, time)`` shapes compared; the second call reads one word more than the first."""

TOLERANCE = 1e-4
"""Largest difference of two log-probabilities, in nats: float32 sums in another order."""

RELATIVE_TOLERANCE = 4e-6
"""Further allowance as a share of the largest log-probability: some 30 roundings of float32.

It is less than `TOLERANCE` until a word is e^-25 likely; after noise that destroyed a model, its
log-probabilities are in the hundreds, and so is what one rounding makes of them.
"""

_RANKED = 10
_SEED = 20_190_714


class ParityError(ValueError):
    """Raised when the graph and torch disagree, or cannot be compared."""


def check_parity(
    graph: NextWordGraph,
    settings: ModelSettings,
    parameters: FlatVector,
    *,
    shapes: Shapes = SHAPES,
    tolerance: float = TOLERANCE,
) -> ParityRecord:
    """Compare the graph with torch and return by how much they differ at most.

    Args:
        parameters: Flat float32 in schema order, shape ``(elements,)``.
        shapes: The ``(batch, time)`` shapes to compare.
        tolerance: Largest difference allowed, in nats, before ``RELATIVE_TOLERANCE`` is added.

    Raises:
        ParityError: If two log-probabilities differ by more, the ranking is not the distribution's,
            the model reads too few tokens for two calls, or torch is missing.
    """
    network = _word_network(settings, parameters)
    shapes = fitting(shapes, network.context_size)
    generator = np.random.default_rng(_SEED)
    largest = 0.0
    for batch, time in shapes:
        tokens = generator.integers(0, graph.vocabulary_size, (batch, 2 * time + 1))
        for found, expected in _compared(graph, network, tokens, time):
            where = f"batch {batch} and time {time}"
            largest = max(largest, check_distributions(found, expected, tolerance, where))
    return ParityRecord(shapes=shapes, largest_difference=largest)


def fitting(shapes: Shapes, context_size: int | None) -> Shapes:
    """Return the shapes, no longer than a model with a limited context can read in two calls."""
    if context_size is None:
        return shapes
    longest = (context_size - 1) // 2
    if longest < 1:
        raise ParityError(
            f"context_size must be >= 3 to compare two calls with torch, got {context_size}"
        )
    return tuple((batch, min(time, longest)) for batch, time in shapes)


def is_torch_there() -> bool:
    """Return whether torch can be imported, without importing it."""
    return importlib.util.find_spec("torch") is not None


def _compared(
    graph: NextWordGraph, network: "WordNetwork", tokens: NDArray[np.int64], split: int
) -> list[tuple[_Distributions, _Distributions]]:
    """Return the graph's and torch's after the first ``split`` words, and after the rest."""
    k = min(_RANKED, graph.vocabulary_size)
    first = graph.step(tokens[:, :split], graph.fresh_state(len(tokens)), k=k)
    second = graph.step(tokens[:, split:], first.state, k=k)
    expected = _torch_distributions(network, tokens, split)
    for prediction in (first, second):
        _check_ranking(prediction)
    found = (first.distribution, second.distribution)
    return list(zip(found, expected, strict=True))


def _check_ranking(prediction: Prediction) -> None:
    """Check that the k words are the likeliest ones, in order, with their own values."""
    k = prediction.words.shape[1]
    best = -np.sort(-prediction.distribution, axis=1)[:, :k]
    named = np.take_along_axis(prediction.distribution, prediction.words, axis=1)
    if not (np.array_equal(best, named) and np.array_equal(best, prediction.log_probabilities)):
        raise ParityError("the ranked words must be the likeliest of the distribution, in order")


def _word_network(settings: ModelSettings, parameters: FlatVector) -> "WordNetwork":
    network = torch_network(settings, parameters)
    from models.networks.registry import word_network

    return word_network(network)


def torch_network(settings: ModelSettings, parameters: FlatVector) -> "Network":
    """Return torch's network with these parameters, to predict; ParityError if torch is missing."""
    try:
        import torch

        from models.networks.flat_parameters import load_parameters
        from models.networks.registry import build_network
    except ImportError as error:
        raise ParityError(
            f"{error.name} is missing, so the graph cannot be compared; install sotto[train]"
        ) from None
    network = build_network(settings).eval()
    load_parameters(network, schema_of(settings), torch.from_numpy(np.array(parameters)))
    return network


def check_distributions(
    found: _Distributions, expected: _Distributions, tolerance: float, where: str
) -> float:
    """Return how far log-probabilities are apart at most, in nats; NaN and infinity fail too.

    Raise ParityError beyond the tolerance and ``RELATIVE_TOLERANCE`` of the largest expected value
    together; says where.
    """
    difference = float(np.abs(found - expected).max())
    allowed = tolerance + RELATIVE_TOLERANCE * float(np.abs(expected).max())
    if not (difference <= allowed and difference < math.inf):
        raise ParityError(
            f"log-probabilities must agree with torch to {allowed:.3g} nats, differ by "
            f"{difference:.3g} at {where}"
        )
    return difference


def _torch_distributions(
    network: "WordNetwork", tokens: NDArray[np.int64], split: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return torch's log-probabilities after ``split`` words and after all."""
    import torch

    with torch.inference_mode():
        if network.context_size is None:
            first, state = network.features(torch.from_numpy(tokens[:, :split]), None)
            second, _ = network.features(torch.from_numpy(tokens[:, split:]), state)
            last = [first[:, -1], second[:, -1]]
        else:  # It carries nothing: all is read at once, and the graph's cache must not show.
            features, _ = network.features(torch.from_numpy(tokens), None)
            last = [features[:, split - 1], features[:, -1]]
        scores = [features @ network.output_weight.T + network.output_bias for features in last]
        found = [torch.log_softmax(score, dim=-1).numpy() for score in scores]
    return found[0], found[1]
