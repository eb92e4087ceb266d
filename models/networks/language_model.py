"""The protocol of a next-word model, and the parts that every family shares.

A network ends in features; the loss and the metrics multiply them with the output matrix
themselves, in chunks, because logits over a whole vocabulary are the largest tensor of a step.
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class LanguageModel(Protocol):
    """Turn tokens into features whose product with the output matrix scores the next word.

    Attributes:
        context_size: Longest sequence that one call may hold, in tokens; None for any.
    """

    context_size: int | None

    @property
    def output_weight(self) -> Tensor:
        """Return the output matrix, shape ``(vocab, embed)``; tied or not."""
        ...

    @property
    def output_bias(self) -> Tensor:
        """Return the output bias, shape ``(vocab,)``."""
        ...

    def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Read tokens from left to right; no feature depends on a later token.

        Args:
            tokens: Word numbers, int64, shape ``(batch, time)``.
            state: What an earlier call returned for the text just before, or None at its start.

        Returns:
            Features, shape ``(batch, time, embed)``, and the state after the last token; None
            from a family that carries nothing.

        Raises:
            ValueError: If the sequence is longer than ``context_size``.
        """
        ...

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every parameter anew, in schema order."""
        ...


class OutputLayer(nn.Module):
    """Hold the output layer's parameters: a bias, and a matrix where it is not the embedding's.

    Attributes:
        weight: Shape ``(vocab, embed)``, or None where the embedding's matrix is used.
        bias: Shape ``(vocab,)``.
    """

    weight: nn.Parameter | None

    def __init__(self, vocabulary_size: int, embed_size: int, *, tied: bool) -> None:
        super().__init__()
        matrix = None if tied else nn.Parameter(torch.empty(vocabulary_size, embed_size))
        self.register_parameter("weight", matrix)
        self.bias = nn.Parameter(torch.empty(vocabulary_size))


class Dropout(nn.Module):
    """Drop elements with draws from a generator of its own, never from the global one.

    Attributes:
        probability: Probability in [0, 1) that an element becomes zero while training.
        generator: Source of the draws, on the device of the input; ``use_generator`` sets it.
        masks: What is taken, call by call, instead of drawing; ``use_masks`` sets it.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.generator: torch.Generator | None = None
        self.masks: Iterator[Tensor] | None = None

    def forward(self, values: Tensor) -> Tensor:
        """Return the values with some elements dropped and the rest scaled up to match.

        Args:
            values: Any shape.

        Raises:
            ValueError: If the network trains with dropout and has no generator.
        """
        if not self.training or self.probability == 0:
            return values
        if self.masks is not None:
            return values * next(self.masks)
        return values * draw_mask(torch.empty_like(values), self.probability, self.source())

    def source(self) -> torch.Generator:
        """Return the generator.

        Raises:
            ValueError: If the network trains and has none.
        """
        if self.generator is None:
            raise ValueError("dropout must be given a generator before training: use_generator")
        return self.generator


def draw_mask(mask: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Fill a tensor with 0 where an element is dropped and 1 / (1 - probability) elsewhere."""
    kept = 1 - probability
    return mask.bernoulli_(kept, generator=generator).div_(kept)


def use_masks(network: nn.Module, masks: Iterator[Tensor]) -> None:
    """Let every dropout of a network take its masks from here, in the order of the calls.

    Args:
        network: Its dropouts draw nothing from now on.
        masks: Each in the shape of what is dropped, made by ``draw_mask``.
    """
    for module in network.modules():
        if isinstance(module, Dropout):
            module.masks = masks


def use_generator(network: nn.Module, generator: torch.Generator) -> None:
    """Let every dropout of a network draw from this generator."""
    for module in network.modules():
        if isinstance(module, Dropout):
            module.generator = generator
