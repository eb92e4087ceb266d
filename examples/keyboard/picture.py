"""Draw the demonstration: perplexity by round, and who was attended to in which layer."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from server.aggregation.rule import AggregationWeights


def draw(path: Path, perplexity: Sequence[float], weights: AggregationWeights) -> None:
    """Write the picture as PNG.

    Args:
        path: Where to.
        perplexity: Held-out perplexity before training and after each round.
        weights: Attention weights of one round.
    """
    mpl.use("Agg")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(range(len(perplexity)), perplexity, marker="o", color="#2a6f97")
    left.set_yscale("log")
    left.set_xlabel("round")
    left.set_ylabel("held-out perplexity")
    left.set_title("The keyboard learns, with noise on the aggregate")
    left.grid(which="both", alpha=0.3)

    image = right.imshow(weights.shares, aspect="auto", cmap="viridis")
    right.set_yticks(
        range(len(weights.slots)), [f"device-{slot + 1:04d}" for slot in weights.slots]
    )
    right.set_xticks(range(len(weights.layers)), weights.layers, rotation=35, ha="right")
    right.set_title(f"Attention weights, no noise (equal would be {1 / len(weights.slots):.2f})")
    for row, shares in enumerate(weights.shares):
        for column, share in enumerate(shares):
            right.text(column, row, f"{share:.3f}", ha="center", va="center", color="white")
    figure.colorbar(image, ax=right)
    figure.savefig(path, dpi=130)
    plt.close(figure)
