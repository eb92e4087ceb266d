"""Settings of the word models, the union of all families, and their schemas. No torch.

A new family is a settings struct in a file of this district, one member of ``ModelSettings``, one
network in its own file, and one case in ``models/networks/registry.py``. A test compares each
schema with the network that it describes.
"""

from typing import ClassVar

from models.settings.bounds import check_at_least, check_below_one
from models.settings.character import CharLstmSettings, CharTransformerSettings
from models.settings.family import Family
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.settings.image import ConvNetSettings, VitSettings
from models.settings.plugin import PluginModel
from models.settings.seq2seq import Seq2SeqSettings
from models.settings.vocoder import VocoderSettings
from models.settings.voice import TransformerTtsSettings
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    SEQUENTIAL,
    attention_tensors,
    feedforward_tensors,
    linear_tensors,
    norm_tensors,
    stacked,
    tensor,
)


class _WordFamily(Family, frozen=True, kw_only=True):
    """The setting that every next-word model has.

    Attributes:
        vocabulary_size: Number of words the model can predict, ``<unk>`` and ``<eos>`` included.
    """

    vocabulary_size: int

    def __post_init__(self) -> None:
        check_at_least(self, 3, "vocabulary_size")


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
        check_at_least(self, 1, "hidden_size")
        check_below_one(self, "dropout")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        vocab, hidden = self.vocabulary_size, self.hidden_size
        output = linear_tensors("output", vocab, hidden)
        return Schema(
            (
                tensor("embedding", "weight", vocab, hidden),
                tensor("gru", "weight_ih_l0", 3 * hidden, hidden),
                tensor("gru", "weight_hh_l0", 3 * hidden, hidden),
                tensor("gru", "bias_ih_l0", 3 * hidden),
                tensor("gru", "bias_hh_l0", 3 * hidden),
                *(output[1:] if self.tied else output),
            )
        )


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
        check_at_least(self, 1, "model_size", "head_count", "layer_count")
        check_at_least(self, 1, "feedforward_size", "context_size")
        if self.model_size % self.head_count:
            raise ValueError(
                f"model_size must be a multiple of head_count {self.head_count}, "
                f"got {self.model_size}"
            )
        check_below_one(self, "dropout")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        vocab, width = self.vocabulary_size, self.model_size
        output = linear_tensors("output", vocab, width)
        return Schema(
            (
                tensor("embedding", "weight", vocab, width),
                tensor("position", "weight", self.context_size, width),
                *stacked("blocks", self.layer_count, self._block),
                *norm_tensors("norm", width),
                *(output[1:] if self.tied else output),
            )
        )

    def _block(self, block: str) -> list[TensorSpec]:
        width = self.model_size
        return [
            *norm_tensors(f"{block}.attention_norm", width),
            *attention_tensors(f"{block}.attention", model_size=width, inner_size=width),
            *norm_tensors(f"{block}.feedforward_norm", width),
            *feedforward_tensors(f"{block}.feedforward", width, self.feedforward_size, SEQUENTIAL),
        ]


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
    | PluginModel
)


def schema_of(settings: ModelSettings) -> Schema:
    """Return the schema that the settings imply, every tensor ``shared``."""
    return settings.schema()
