"""Dropout whose draws can be repeated: from a generator of its own, or from given masks."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """A layer that drops elements with draws from its own generator, never from the global one.

    Attributes:
        probability: Probability in [0, 1) that an element becomes zero while training.
        generator: Source of the draws, on the device of the input; ``use_generator`` sets it.
        masks: Masks used in turn instead of draws; ``use_masks`` sets it.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.generator: torch.Generator | None = None
        self.masks: Iterator[Tensor] | None = None

    def forward(self, values: Tensor) -> Tensor:
        """Return the values, of any shape, with some dropped and the rest scaled up to match."""
        if not self.training or self.probability == 0:
            return values
        if self.masks is not None:
            return values * next(self.masks)
        return values * draw_mask(torch.empty_like(values), self.probability, self.source())

    def source(self) -> torch.Generator:
        """Return the generator; raise ``ValueError`` if there is none."""
        if self.generator is None:
            raise ValueError("dropout must be given a generator before training: use_generator")
        return self.generator


def draw_mask(mask: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Fill a tensor with 0 where an element is dropped and 1 / (1 - probability) elsewhere."""
    kept = 1 - probability
    return mask.bernoulli_(kept, generator=generator).div_(kept)


def use_masks(network: nn.Module, masks: Iterator[Tensor]) -> None:
    """Let every dropout of a network use these masks of ``draw_mask``, in the order of calls."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.masks = masks


def use_generator(network: nn.Module, generator: torch.Generator) -> None:
    """Let every dropout of a network draw from this generator."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.generator = generator
