"""Hold every client's examples once, in memory that all worker processes see."""

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from models.image_classification import LabelledImages

Examples = Tensor | LabelledImages
"""One person's examples: a stream of words or characters, int64 of shape ``(time,)``, or images.
A new kind is named here and taken apart in `_tensors` and `_together`."""


class SharedExamples(Mapping[str, Examples]):
    """Map names to examples that lie in a few shared tensors, one after the other."""

    def __init__(self, packed: tuple[Tensor, ...], spans: dict[str, tuple[int, int]]) -> None:
        """Take tensors whose first axis is all examples, and each name's start and end in them."""
        self._packed = packed
        self._spans = spans

    @classmethod
    def pack(cls, examples: Mapping[str, Examples]) -> Self:
        """Copy examples, all of one kind, into shared memory.

        Raises:
            ValueError: If there are none, or their tensors differ in number, type or shape.
        """
        if not examples:
            raise ValueError("there must be somebody with examples, got nobody")
        packed = []
        for parts in zip(*map(_tensors, examples.values()), strict=True):
            _check_alike(parts)
            together = torch.cat(parts)
            together.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            packed.append(together)
        ends = accumulate((len(own) for own in examples.values()), initial=0)
        return cls(tuple(packed), dict(zip(examples, pairwise(ends), strict=True)))

    def __getitem__(self, name: str) -> Examples:
        start, end = self._spans[name]
        return _together([tensor[start:end] for tensor in self._packed])

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


def _tensors(examples: Examples) -> tuple[Tensor, ...]:
    if isinstance(examples, LabelledImages):
        return examples.pixels, examples.labels
    return (examples,)


def _together(tensors: list[Tensor]) -> Examples:
    """Undo ``_tensors``: a stream is one tensor, images are two."""
    if len(tensors) == 1:
        return tensors[0]
    pixels, labels = tensors
    return LabelledImages(pixels, labels)


def _check_alike(tensors: tuple[Tensor, ...]) -> None:
    kinds = {(tensor.dtype, tensor.shape[1:]) for tensor in tensors}
    if len(kinds) != 1:
        raise ValueError(
            f"everybody's examples must be of one type and shape, got {sorted(map(str, kinds))}"
        )
