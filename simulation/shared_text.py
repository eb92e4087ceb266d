"""Hold every client's tokens once, in memory that all worker processes see."""

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor


class SharedText(Mapping[str, Tensor]):
    """Map names to token streams that lie in one shared tensor."""

    def __init__(self, tokens: Tensor, spans: dict[str, tuple[int, int]]) -> None:
        """Take tokens of shape ``(all tokens,)`` and each name's start and end in them."""
        self._tokens = tokens
        self._spans = spans

    @classmethod
    def pack(cls, streams: Mapping[str, Tensor]) -> Self:
        """Copy the streams, int64 of shape ``(time,)`` each, into shared memory.

        Raises:
            ValueError: If there is no stream.
        """
        if not streams:
            raise ValueError("there must be at least one token stream")
        tokens = torch.cat(list(streams.values()))
        tokens.share_memory_()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        ends = accumulate((len(stream) for stream in streams.values()), initial=0)
        return cls(tokens, dict(zip(streams, pairwise(ends), strict=True)))

    def __getitem__(self, name: str) -> Tensor:
        start, end = self._spans[name]
        return self._tokens[start:end]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)
