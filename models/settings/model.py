"""Settings of the word models, the union of all families, and their schemas. No torch.

A new family is a settings struct in a file of this district, one member of ``ModelSettings``, one
network in its own file, and one case in ``models/networks/registry.py``. A test compares each
schema with the network that it describes.
"""

from typing import ClassVar

import msgspec

from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    check_at_least,
    check_dropout,
    linear_tensors,
    norm_tensors,
    tensor,
)


class _WordFamily(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="family"
):
    """The setting that every next-word model has.

    Attributes:
        vocabulary_size: Number of words the model can predict, ``<unk>`` and ``<eos>`` included.
    """

    vocabulary_size: int

    def __post_init__(self) -> None:
        check_at_least("vocabulary_size", self.vocabulary_size, 3)


class GruLmSettings(_WordFamily, frozen=True, kw_only=True, tag="gru_lm"):
    """Embedding, one GRU layer, linear output ([FedAtt] section IV).

    Attributes:
        hidden_size: Width of the GRU state and of the embedding: small 300, medium 650, large 1500
            in the paper.
        tied: Whether the output layer shares the embedding's matrix (its bias is its own).
        dropout: Probability in [0, 1) of dropping an element of the embedding and of the GRU's
            output.
    """

    hidden_size: int = 300
    tied: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least("hidden_size", self.hidden_size, 1)
        check_dropout(self.dropout)

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _gru_lm_schema(self)


class TransformerLmSettings(_WordFamily, frozen=True, kw_only=True, tag="transformer_lm"):
    """Causal pre-LN Transformer for next words, with attention made of linear layers and SDPA.

    Attributes:
        model_size: Width of the residual stream; a multiple of ``head_count``.
        head_count: Attention heads in each layer.
        layer_count: Blocks.
        feedforward_size: Hidden width of each block's feed-forward network.
        context_size: Longest sequence in tokens (the size of the position table).
        tied: Whether the output layer shares the embedding's matrix (its bias is its own).
        dropout: Probability in [0, 1) of dropping an element after each sub-layer.
    """

    growing: ClassVar[GrowingLayers] = GrowingLayers(
        stacks=(LayerStack(name="blocks", setting="layer_count"),),
        residual_outputs=("attention.to_out", "feedforward.2"),
        norms_first=True,
    )

    model_size: int = 128
    head_count: int = 4
    layer_count: int = 2
    feedforward_size: int = 512
    context_size: int = 64
    tied: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("model_size", "head_count", "layer_count", "feedforward_size", "context_size"):
            check_at_least(name, getattr(self, name), 1)
        if self.model_size % self.head_count:
            raise ValueError(
                f"model_size must be a multiple of head_count {self.head_count}, "
                f"got {self.model_size}"
            )
        check_dropout(self.dropout)

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _transformer_lm_schema(self)


WordModelSettings = GruLmSettings | TransformerLmSettings
"""Families that predict the next word of a list."""

ImageModelSettings = VitSettings | ConvNetSettings
"""Families that classify images."""

CharacterModelSettings = CharLstmSettings | CharTransformerSettings
"""Families that predict the next character."""

ModelSettings = (
    WordModelSettings
    | ImageModelSettings
    | CharacterModelSettings
    | Seq2SeqSettings
    | TransformerTtsSettings
    | VocoderSettings
)


def schema_of(settings: ModelSettings) -> Schema:
    """Return the schema that the settings imply, every tensor ``shared``."""
    return settings.schema()


def _gru_lm_schema(settings: GruLmSettings) -> Schema:
    vocab, hidden = settings.vocabulary_size, settings.hidden_size
    tensors = [
        TensorSpec(name="embedding.weight", shape=(vocab, hidden), layer="embedding"),
        TensorSpec(name="gru.weight_ih_l0", shape=(3 * hidden, hidden), layer="gru"),
        TensorSpec(name="gru.weight_hh_l0", shape=(3 * hidden, hidden), layer="gru"),
        TensorSpec(name="gru.bias_ih_l0", shape=(3 * hidden,), layer="gru"),
        TensorSpec(name="gru.bias_hh_l0", shape=(3 * hidden,), layer="gru"),
    ]
    if not settings.tied:
        tensors.append(TensorSpec(name="output.weight", shape=(vocab, hidden), layer="output"))
    bias = TensorSpec(name="output.bias", shape=(vocab,), layer="output")
    return Schema((*tensors, bias))


def _transformer_lm_schema(settings: TransformerLmSettings) -> Schema:
    vocab, width = settings.vocabulary_size, settings.model_size
    output = linear_tensors("output", vocab, width)
    if settings.tied:
        del output[0]
    blocks = [
        spec
        for block in range(settings.layer_count)
        for spec in _block_tensors(f"blocks.{block}", width, settings.feedforward_size)
    ]
    return Schema(
        (
            tensor("embedding", "weight", vocab, width),
            tensor("position", "weight", settings.context_size, width),
            *blocks,
            *norm_tensors("norm", width),
            *output,
        )
    )


def _block_tensors(block: str, width: int, feedforward: int) -> list[TensorSpec]:
    return [
        *norm_tensors(f"{block}.attention_norm", width),
        *attention_tensors(f"{block}.attention", model_size=width, inner_size=width),
        *norm_tensors(f"{block}.feedforward_norm", width),
        *linear_tensors(f"{block}.feedforward.0", feedforward, width),
        *linear_tensors(f"{block}.feedforward.2", width, feedforward),
    ]
