"""Settings of the next-character models, and the schemas they imply. No torch.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A.
    [LEAF] Caldas et al., 2018, arXiv:1812.01097: the stacked LSTM and its 80 letters of context.
"""

from typing import ClassVar

import msgspec

from models.settings.growing_layers import GrowingLayers, LayerStack
from models.text.alphabet import ALPHABET
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    check_at_least,
    check_dropout,
    linear_tensors,
    norm_tensors,
    tensor,
)


class _CharacterFamily(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="family"
):
    """The setting that every next-character model has.

    Attributes:
        context_size: Most characters that a prediction is made from.
    """

    context_size: int = 80

    def __post_init__(self) -> None:
        check_at_least("context_size", self.context_size, 1)


class CharLstmSettings(_CharacterFamily, frozen=True, kw_only=True, tag="char_lstm"):
    """Embedding, stacked LSTM layers, linear output: the baseline of [FedTP] and [LEAF].

    Attributes:
        embedding_size: Width of a character's embedding.
        hidden_size: Width of each layer's state.
        layer_count: LSTM layers.
    """

    embedding_size: int = 8
    hidden_size: int = 256
    layer_count: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("embedding_size", "hidden_size", "layer_count"):
            check_at_least(name, getattr(self, name), 1)

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _char_lstm_schema(self)


class CharTransformerSettings(_CharacterFamily, frozen=True, kw_only=True, tag="char_transformer"):
    """[FedTP]'s Transformer for Shakespeare, with the causal mask that its code leaves out.

    Attributes:
        model_size: Width of the residual stream; even.
        head_count: Attention heads in each block.
        head_size: Width of one head.
        layer_count: Blocks.
        feedforward_size: Hidden width of each block's feed-forward network.
        dropout: Probability in [0, 1) of dropping an element, in training.
    """

    growing: ClassVar[GrowingLayers] = GrowingLayers(
        stacks=(LayerStack(name="blocks", setting="layer_count"),),
        residual_outputs=("attention.to_out", "feedforward.2"),
        norms_first=False,
    )

    model_size: int = 128
    head_count: int = 8
    head_size: int = 64
    layer_count: int = 2
    feedforward_size: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("model_size", "head_count", "head_size", "layer_count", "feedforward_size"):
            check_at_least(name, getattr(self, name), 1)
        if self.model_size % 2:
            raise ValueError(f"model_size must be even, got {self.model_size}")
        check_dropout(self.dropout)

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _char_transformer_schema(self)


def _char_lstm_schema(settings: CharLstmSettings) -> Schema:
    hidden = settings.hidden_size
    layers = [
        TensorSpec(name=f"lstm.{entry}_l{layer}", shape=shape, layer=f"lstm.l{layer}")
        for layer in range(settings.layer_count)
        for entry, shape in (
            ("weight_ih", (4 * hidden, hidden if layer else settings.embedding_size)),
            ("weight_hh", (4 * hidden, hidden)),
            ("bias_ih", (4 * hidden,)),
            ("bias_hh", (4 * hidden,)),
        )
    ]
    return Schema(
        (
            tensor("embedding", "weight", len(ALPHABET), settings.embedding_size),
            *layers,
            *linear_tensors("head", len(ALPHABET), hidden),
        )
    )


def _char_transformer_schema(settings: CharTransformerSettings) -> Schema:
    width = settings.model_size
    blocks = [
        spec
        for block in range(settings.layer_count)
        for spec in _block_tensors(f"blocks.{block}", settings)
    ]
    return Schema(
        (
            tensor("embedding", "weight", len(ALPHABET), width),
            *norm_tensors("norm", width),
            *blocks,
            tensor("head", "weight", len(ALPHABET), width),
        )
    )


def _block_tensors(block: str, settings: CharTransformerSettings) -> list[TensorSpec]:
    width, inner = settings.model_size, settings.head_count * settings.head_size
    return [
        *attention_tensors(
            f"{block}.attention", model_size=width, inner_size=inner, out_bias=False
        ),
        *norm_tensors(f"{block}.attention_norm", width),
        *linear_tensors(f"{block}.feedforward.0", settings.feedforward_size, width),
        *linear_tensors(f"{block}.feedforward.2", width, settings.feedforward_size),
        *norm_tensors(f"{block}.feedforward_norm", width),
    ]
