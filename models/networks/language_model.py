"""The protocol of a next-word model.

A network ends in features. The loss and the metrics multiply them with the output matrix in chunks,
because logits over a whole vocabulary are the largest tensor of a step.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class LanguageModel(Protocol):
    """A network that turns tokens into features; their product with the output matrix scores words.

    Attributes:
        context_size: Longest sequence that one call may hold, in tokens; None for any.
    """

    context_size: int | None

    @property
    def output_weight(self) -> Tensor:
        """Return the output matrix, shape ``(vocab, embed)``; tied or not."""

    @property
    def output_bias(self) -> Tensor:
        """Return the output bias, shape ``(vocab,)``."""

    def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return features, ``(batch, time, embed)``, and the state after the last token.

        ``tokens`` are word numbers, int64, ``(batch, time)``, read from left to right; no feature
        depends on a later one. ``state`` is that after the text just before, or None at its start;
        a family that carries nothing returns None.

        Raises:
            ValueError: If the sequence is longer than ``context_size``.
        """

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every parameter anew, in schema order."""
