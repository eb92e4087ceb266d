"""The whole Transformer: an encoder that reads a sequence and a decoder that writes another.

Each sub-layer is added to its input and normed after that. Encoder layers attend to the whole
source but its padding; decoder layers attend to what is written so far, then to the encoder's
output. Attentions have no biases, feed-forward networks have.

References:
    [Tutorial] "Transformer and federated learning", sections 2.1 and 3.1-3.2: layers, masks and
        residuals; sinusoids and scaled embeddings, which it leaves out, are those of [Vaswani].
    [Vaswani] "Attention Is All You Need", NeurIPS 2017, arXiv:1706.03762.
"""

import math

import torch
from torch import Tensor, nn

from models.layers.attention import CrossAttention, SelfAttention
from models.layers.dropout import Dropout
from models.layers.initialisation import draw_glorot
from models.layers.positions import sinusoids
from models.layers.transformer import PostNormBlock, plain_feedforward
from models.settings.seq2seq import Seq2SeqSettings

PADDING = 0
BEGIN = 1
END = 2


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, settings: Seq2SeqSettings) -> None:
        super().__init__()
        width, heads = settings.model_size, settings.head_count
        self.attention = _self_attention(settings, causal=True)
        self.attention_norm = nn.LayerNorm(width)
        self.cross_attention = CrossAttention(width, heads, width // heads, out_bias=False)
        self.cross_attention_norm = nn.LayerNorm(width)
        self.feedforward = plain_feedforward(width, settings.feedforward_size, nn.ReLU())
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(settings.dropout)

    def forward(self, values: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the stream after the layer, ``(batch, target time, embed)``.

        ``memory`` is the encoder's output; ``mask`` is False at its padding, bool, shape
        ``(batch, 1, 1, source time)``.
        """
        values = self.attention_norm(values + self.dropout(self.attention(values)))
        taken = self.cross_attention(values, memory, mask)
        values = self.cross_attention_norm(values + self.dropout(taken))
        return self.feedforward_norm(  # type: ignore[no-any-return]  # modules return Any
            values + self.dropout(self.feedforward(values))
        )


class Seq2Seq(nn.Module):
    """Embeddings and positions -> encoder -> decoder -> head."""

    position: Tensor

    def __init__(self, settings: Seq2SeqSettings) -> None:
        super().__init__()
        symbols, width = settings.symbol_count, settings.model_size
        self.context_size = settings.context_size
        self.scale = math.sqrt(width)
        self.source = nn.Embedding(symbols, width)
        self.target = nn.Embedding(symbols, width)
        self.register_buffer("position", sinusoids(settings.context_size, width), persistent=False)
        self.encoder = nn.ModuleList(
            PostNormBlock(
                _self_attention(settings, causal=False), settings.feedforward_size, settings.dropout
            )
            for _ in range(settings.encoder_layer_count)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(settings) for _ in range(settings.decoder_layer_count)
        )
        self.head = nn.Linear(width, symbols)
        self.dropout = Dropout(settings.dropout)

    def features(self, sources: Tensor, written: Tensor) -> Tensor:
        """Return the head's input after each written symbol, ``(batch, target time, embed)``.

        No symbol sees a later one. ``sources``, ``(batch, source time)``, are padded at the end,
        none is
        padding alone; ``written``, ``(batch, target time)``, is ``BEGIN`` and the target so far.
        Both are
        int64, and more than ``context_size`` is a ``ValueError``.
        """
        return self.decode(*self.encode(sources), written)

    def encode(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's output, ``(batch, source time, embed)``, and its padding's mask."""
        mask = (sources != PADDING)[:, None, None, :]
        values = self._placed(self.source, sources)
        for layer in self.encoder:
            values = layer(values, mask)
        return values, mask

    def decode(self, memory: Tensor, mask: Tensor, written: Tensor) -> Tensor:
        """Return what the head reads after each written symbol; arguments as ``encode`` gives."""
        values = self._placed(self.target, written)
        for layer in self.decoder:
            values = layer(values, memory, mask)
        return values

    def _placed(self, embedding: nn.Embedding, symbols: Tensor) -> Tensor:
        time = symbols.shape[1]
        if time > self.context_size:
            raise ValueError(
                f"a sequence must have at most {self.context_size} symbols, got {time}"
            )
        placed: Tensor = self.dropout(embedding(symbols) * self.scale + self.position[:time])
        return placed

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Draw layers from Glorot's uniform distribution, embeddings of size 1 once scaled."""
        draw_glorot(self, generator)
        for embedding in (self.source, self.target):
            embedding.weight.normal_(0, 1 / self.scale, generator=generator)


def _self_attention(settings: Seq2SeqSettings, *, causal: bool) -> SelfAttention:
    width, heads = settings.model_size, settings.head_count
    return SelfAttention(width, heads, width // heads, causal=causal, out_bias=False)
