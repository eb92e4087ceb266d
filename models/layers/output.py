"""The output layer of a next-word model."""

import torch
from torch import nn


class OutputLayer(nn.Module):
    """The output layer of a next-word model: a bias, and a matrix unless the embedding's is used.

    Attributes:
        weight: Shape ``(vocab, embed)``; None if the embedding's matrix is used.
        bias: Shape ``(vocab,)``.
    """

    weight: nn.Parameter | None

    def __init__(self, vocabulary_size: int, embed_size: int, *, tied: bool) -> None:
        super().__init__()
        matrix = None if tied else nn.Parameter(torch.empty(vocabulary_size, embed_size))
        self.register_parameter("weight", matrix)
        self.bias = nn.Parameter(torch.empty(vocabulary_size))
