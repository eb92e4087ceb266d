"""Hold every client's examples once, in memory that all worker processes see."""

import warnings
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.tasks.image_classification import LabelledImages
from models.tasks.rows import Rows
from models.tasks.sequence import SequencePairs
from models.tasks.speech_examples import SpeechExamples

Examples = Tensor | LabelledImages | SequencePairs | SpeechExamples | Rows
"""One person's examples: a stream of words or characters, int64 of shape ``(time,)``, segments of
sound, float32 of shape ``(segments, samples)``, images, pairs of sequences, clips, or a plugin's
rows. A new kind is named here and taken apart in `_tensors` and `_together`."""


class ExampleArrays(NamedTuple):
    """Everybody's examples as they travel to another machine: arrays, and what lies where."""

    kind: type[Examples]
    packed: tuple[NDArray[np.generic], ...]
    spans: dict[str, tuple[slice, ...]]

    @property
    def nbytes(self) -> int:
        """Return the size of the arrays in bytes."""
        return sum(array.nbytes for array in self.packed)


class SharedExamples(Mapping[str, Examples]):
    """Names of examples that lie in a few shared tensors, one after the other."""

    def __init__(
        self, kind: type[Examples], packed: tuple[Tensor, ...], spans: dict[str, tuple[slice, ...]]
    ) -> None:
        self._kind = kind
        self._packed = packed
        self._spans = spans

    @classmethod
    def pack(cls, examples: Mapping[str, Examples]) -> Self:
        """Copy examples, all of one kind, into shared memory.

        Raises:
            ValueError: If there are none, or they differ in kind, type or shape.
        """
        if not examples:
            raise ValueError("there must be somebody with examples, got nobody")
        kinds = {type(own) for own in examples.values()}
        if len(kinds) != 1:
            names = sorted(kind.__name__ for kind in kinds)
            raise ValueError(f"everybody's examples must be of one kind, got {', '.join(names)}")
        packed, spans = [], []
        for parts in zip(*map(_tensors, examples.values()), strict=True):
            _check_alike(parts)
            together = torch.cat(parts)
            together.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            packed.append(together)
            ends = accumulate((len(part) for part in parts), initial=0)
            spans.append([slice(*edge) for edge in pairwise(ends)])
        own_spans = dict(zip(examples, zip(*spans, strict=True), strict=True))
        return cls(kinds.pop(), tuple(packed), own_spans)

    @classmethod
    def of_arrays(cls, arrays: ExampleArrays) -> Self:
        """Return examples that lie in arrays, which nobody may change."""
        with warnings.catch_warnings():
            # Memory that machines share is read-only, and no trainer writes to examples.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            packed = tuple(torch.from_numpy(array) for array in arrays.packed)
        return cls(arrays.kind, packed, arrays.spans)

    def arrays(self) -> ExampleArrays:
        """Return the examples as arrays, in the same memory."""
        return ExampleArrays(
            self._kind, tuple(tensor.numpy() for tensor in self._packed), self._spans
        )

    def __getitem__(self, name: str) -> Examples:
        spans = zip(self._packed, self._spans[name], strict=True)
        return _together(self._kind, [tensor[span] for tensor, span in spans])

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)


def _tensors(examples: Examples) -> tuple[Tensor, ...]:
    match examples:
        case LabelledImages():
            return examples.pixels, examples.labels
        case SequencePairs():
            return examples.sources, examples.targets
        case SpeechExamples():
            return examples.frames, examples.symbols, examples.lengths
        case Rows():
            return examples.tensors
        case _:
            return (examples,)


def _together(kind: type[Examples], tensors: list[Tensor]) -> Examples:
    """Undo ``_tensors``: a stream is one tensor, anything else is made of its own."""
    match kind:
        case type() if issubclass(kind, Rows):
            return Rows(tuple(tensors))
        case _:
            return tensors[0] if kind is Tensor else kind(*tensors)


def _check_alike(tensors: tuple[Tensor, ...]) -> None:
    kinds = {(tensor.dtype, tensor.shape[1:]) for tensor in tensors}
    if len(kinds) != 1:
        raise ValueError(
            f"everybody's examples must be of one type and shape, got {sorted(map(str, kinds))}"
        )
