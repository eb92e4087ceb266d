"""The protocol of a next-character model."""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class CharacterModel(Protocol):
    """Turn characters into features, and features into a score for every next character.

    Attributes:
        context_size: Most characters that one call may hold.
        head: Last layer; its rows are the alphabet.
    """

    context_size: int
    head: nn.Linear

    def features(self, characters: Tensor) -> Tensor:
        """Read characters from left to right; no feature depends on a later one.

        Args:
            characters: Numbers of the alphabet, int64, shape ``(batch, time)``.

        Returns:
            What the head reads at each place, float32, shape ``(batch, time, embed)``.

        Raises:
            ValueError: If there are more than ``context_size``.
        """
        ...

    def initialise(self, generator: torch.Generator) -> None:
        """Draw every parameter anew, in schema order."""
        ...


def check_fits(characters: Tensor, context_size: int) -> None:
    """Check that a call holds no more characters than the model's context.

    Raises:
        ValueError: If it does.
    """
    if characters.shape[1] > context_size:
        raise ValueError(
            f"a text must have at most {context_size} characters, got {characters.shape[1]}"
        )
