"""One person's examples as rows of tensors, which every plugin's task has."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from models.plan.plan import TrainingSettings


@dataclass(frozen=True)
class Rows:
    """One person's examples, oldest first: row k of each tensor is of example k.

    Attributes:
        tensors: At least one, of the same length; each of one type, and of one shape behind its
            first axis, for everybody.
    """

    tensors: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not self.tensors or len({len(tensor) for tensor in self.tensors}) != 1:
            lengths = [len(tensor) for tensor in self.tensors]
            raise ValueError(f"tensors must be at least one, of one length, got {lengths}")

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, places: Tensor | slice) -> "Rows":
        return Rows(tuple(tensor[places] for tensor in self.tensors))


def drawn_batches(
    rows: Rows, training: TrainingSettings, generator: torch.Generator
) -> Iterator[Rows]:
    """Yield every row once in a drawn order, ``batch_size`` at a time."""
    order = torch.randperm(len(rows), generator=generator)
    for first in range(0, len(rows), training.batch_size):
        yield rows[order[first : first + training.batch_size]]
