"""The keyboard's recurrent model: embedding, one GRU layer, linear output.

References:
    [FedAtt] Ji et al., IJCNN 2019, arXiv:1812.07108, section IV: widths 300, 650 and 1500, tied and
        untied.
"""

import math

import torch
from torch import Tensor, nn

from models.layers.dropout import Dropout
from models.layers.output import OutputLayer
from models.layers.recurrence import Gru
from models.settings.model import GruLmSettings

EMBEDDING_RANGE = 0.1
"""Embeddings start in U(-0.1, 0.1).

The framework's N(0, 1) makes first logits of size sqrt(width) when the matrix is tied: a loss far
above that of a uniform guess, and gradients that clipping then throws away. At 0.1 the first
perplexity is the vocabulary's size.
"""


class GruLm(nn.Module):
    """[embedding] -> dropout -> GRU -> dropout; the output matrix may be the embedding's.

    Gates follow the framework: h' = (1 - z) n + z h with the reset gate applied after the hidden
    product. The paper mirrors z and resets before the product: the same family of functions.
    """

    context_size: int | None = None

    def __init__(self, settings: GruLmSettings) -> None:
        super().__init__()
        vocab, hidden = settings.vocabulary_size, settings.hidden_size
        self.embedding = nn.Embedding(vocab, hidden)
        self.gru = Gru(hidden, hidden)
        self.output = OutputLayer(vocab, hidden, tied=settings.tied)
        self.dropout = Dropout(settings.dropout)

    @property
    def output_weight(self) -> Tensor:
        """Return the output matrix."""
        return self.embedding.weight if self.output.weight is None else self.output.weight

    @property
    def output_bias(self) -> Tensor:
        """Return the output bias."""
        return self.output.bias

    def features(self, tokens: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the GRU's states, ``(batch, time, hidden)``, and its last one, ``(1, batch,
        hidden)``.

        See ``LanguageModel``; a state of None is zeros.
        """
        hidden, state = self.gru(self.dropout(self.embedding(tokens)), state)
        return self.dropout(hidden), state

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw matrices of words from U(-0.1, 0.1), the GRU from U(-1/sqrt(h), 1/sqrt(h))."""
        self.embedding.weight.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)
        bound = 1 / math.sqrt(self.gru.hidden_size)
        for parameter in self.gru.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
        if self.output.weight is not None:
            self.output.weight.uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)
        self.output.bias.zero_()
