"""Compare an exported classifier with torch, over batches that nothing was built for."""

import numpy as np

from export.bundles.manifest import ParityRecord
from export.parity.words import check_distributions, torch_network
from export.runtime.image_graph import ImageGraph
from models.settings.model import ModelSettings
from models.vector.codec import FlatVector

BATCHES = (1, 2, 3, 5, 8, 13)
"""Images that are compared in one call."""

_SEED = 20_230_403


def check_images(
    graph: ImageGraph, settings: ModelSettings, parameters: FlatVector, *, tolerance: float
) -> ParityRecord:
    """Compare a graph with torch; arguments and errors as for ``parity.words.check_parity``."""
    made = torch_network(settings, parameters)
    # Only now: ``torch_network`` says what is missing.
    import torch

    from models.networks.registry import image_network

    network = image_network(made)
    generator = np.random.default_rng(_SEED)
    largest = 0.0
    for batch in BATCHES:
        pixels = generator.integers(0, 256, (batch, *graph.image_shape)).astype(np.uint8)
        with torch.inference_mode():
            scores = network.head(network.features(torch.from_numpy(pixels)))
            expected = torch.log_softmax(scores, dim=-1).numpy()
        found = graph.classify(pixels)
        largest = max(largest, check_distributions(found, expected, tolerance, f"batch {batch}"))
    shapes = tuple((batch, graph.image_shape[0]) for batch in BATCHES)
    return ParityRecord(shapes=shapes, largest_difference=largest)
