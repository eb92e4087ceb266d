"""Settings of the encoder-decoder Transformer, and the schema they imply. No torch."""

from typing import ClassVar

from models.settings.bounds import check_at_least, check_below_one
from models.settings.family import Family
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    SEQUENTIAL,
    attention_tensors,
    cross_attention_tensors,
    feedforward_tensors,
    linear_tensors,
    norm_tensors,
    stacked,
    tensor,
)

SPECIAL_COUNT = 3
"""Symbols that are no content: padding 0, begin 1, end 2."""


class Seq2SeqSettings(Family, frozen=True, kw_only=True, tag="seq2seq"):
    """Full Transformer: encoder, decoder with cross-attention, post-LN, sinusoidal positions.

    Attributes:
        symbol_count: Symbols of source and target, padding, begin and end included.
        context_size: Longest source, and longest target with its end, in symbols.
        model_size: Width of the stream; even, a multiple of ``head_count``.
        head_count: Attention heads in each layer.
        encoder_layer_count: Layers that read the source.
        decoder_layer_count: Layers that write the target.
        feedforward_size: Hidden width of each layer's feed-forward network.
        dropout: Probability in [0, 1) of dropping an element, in training.
    """

    growing: ClassVar[GrowingLayers] = GrowingLayers(
        stacks=(
            LayerStack(name="encoder", setting="encoder_layer_count"),
            LayerStack(name="decoder", setting="decoder_layer_count"),
        ),
        residual_outputs=("attention.to_out", "cross_attention.to_out", "feedforward.2"),
        norms_first=False,
    )

    symbol_count: int
    context_size: int = 64
    model_size: int = 64
    head_count: int = 4
    encoder_layer_count: int = 2
    decoder_layer_count: int = 2
    feedforward_size: int = 128
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(self, SPECIAL_COUNT + 1, "symbol_count")
        check_at_least(self, 2, "context_size")
        check_at_least(self, 1, "model_size", "head_count", "feedforward_size")
        check_at_least(self, 1, "encoder_layer_count", "decoder_layer_count")
        if self.model_size % self.head_count or self.model_size % 2:
            raise ValueError(
                f"model_size must be even and a multiple of head_count {self.head_count}, "
                f"got {self.model_size}"
            )
        check_below_one(self, "dropout")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        symbols, width = self.symbol_count, self.model_size
        return Schema(
            (
                tensor("source", "weight", symbols, width),
                tensor("target", "weight", symbols, width),
                *stacked("encoder", self.encoder_layer_count, self._encoder),
                *stacked("decoder", self.decoder_layer_count, self._decoder),
                *linear_tensors("head", symbols, width),
            )
        )

    def _encoder(self, layer: str) -> list[TensorSpec]:
        return [*self._attention(layer), *self._feedforward(layer)]

    def _decoder(self, layer: str) -> list[TensorSpec]:
        across, width = f"{layer}.cross_attention", self.model_size
        return [
            *self._attention(layer),
            *cross_attention_tensors(across, width, out_bias=False),
            *norm_tensors(f"{across}_norm", width),
            *self._feedforward(layer),
        ]

    def _attention(self, layer: str) -> list[TensorSpec]:
        name, width = f"{layer}.attention", self.model_size
        return [
            *attention_tensors(name, model_size=width, inner_size=width, out_bias=False),
            *norm_tensors(f"{name}_norm", width),
        ]

    def _feedforward(self, layer: str) -> list[TensorSpec]:
        name, width = f"{layer}.feedforward", self.model_size
        return [
            *feedforward_tensors(name, width, self.feedforward_size, SEQUENTIAL),
            *norm_tensors(f"{name}_norm", width),
        ]
