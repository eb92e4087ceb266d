"""Settings of the encoder-decoder Transformer, and the schema they imply. No torch."""

from typing import ClassVar

import msgspec

from models.settings.growing_layers import GrowingLayers, LayerStack
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    check_at_least,
    check_dropout,
    linear_tensors,
    norm_tensors,
    tensor,
)

SPECIAL_COUNT = 3
"""Symbols that are no content: padding 0, begin 1, end 2."""


class Seq2SeqSettings(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="family",
    tag="seq2seq",
):
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
        check_at_least("symbol_count", self.symbol_count, SPECIAL_COUNT + 1)
        check_at_least("context_size", self.context_size, 2)
        for name in ("model_size", "head_count", "encoder_layer_count", "decoder_layer_count"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("feedforward_size", self.feedforward_size, 1)
        if self.model_size % self.head_count or self.model_size % 2:
            raise ValueError(
                f"model_size must be even and a multiple of head_count {self.head_count}, "
                f"got {self.model_size}"
            )
        check_dropout(self.dropout)

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _seq2seq_schema(self)


def _seq2seq_schema(settings: Seq2SeqSettings) -> Schema:
    symbols, width = settings.symbol_count, settings.model_size
    encoder = [
        spec
        for layer in range(settings.encoder_layer_count)
        for spec in (
            *_attention(f"encoder.{layer}", width),
            *_feedforward(f"encoder.{layer}", settings),
        )
    ]
    decoder = [
        spec
        for layer in range(settings.decoder_layer_count)
        for spec in (
            *_attention(f"decoder.{layer}", width),
            *_cross_attention(f"decoder.{layer}", width),
            *_feedforward(f"decoder.{layer}", settings),
        )
    ]
    return Schema(
        (
            tensor("source", "weight", symbols, width),
            tensor("target", "weight", symbols, width),
            *encoder,
            *decoder,
            *linear_tensors("head", symbols, width),
        )
    )


def _attention(layer: str, width: int) -> list[TensorSpec]:
    return [
        *attention_tensors(
            f"{layer}.attention", model_size=width, inner_size=width, out_bias=False
        ),
        *norm_tensors(f"{layer}.attention_norm", width),
    ]


def _cross_attention(layer: str, width: int) -> list[TensorSpec]:
    matrices = ("to_q", "to_k", "to_v", "to_out")
    return [
        *(tensor(f"{layer}.cross_attention.{name}", "weight", width, width) for name in matrices),
        *norm_tensors(f"{layer}.cross_attention_norm", width),
    ]


def _feedforward(layer: str, settings: Seq2SeqSettings) -> list[TensorSpec]:
    width, hidden = settings.model_size, settings.feedforward_size
    return [
        *linear_tensors(f"{layer}.feedforward.0", hidden, width),
        *linear_tensors(f"{layer}.feedforward.2", width, hidden),
        *norm_tensors(f"{layer}.feedforward_norm", width),
    ]
