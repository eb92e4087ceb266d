"""Settings of the next-character models, and the schemas they imply. No torch.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A.
    [LEAF] Caldas et al., 2018, arXiv:1812.01097: the stacked LSTM and its 80 letters of context.
"""

from typing import ClassVar

from models.settings.bounds import check_at_least, check_below_one
from models.settings.family import Family
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.text.alphabet import ALPHABET
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


class _CharacterFamily(Family, frozen=True, kw_only=True):
    """The setting that every next-character model has.

    Attributes:
        context_size: Most characters that a prediction is made from.
    """

    context_size: int = 80

    def __post_init__(self) -> None:
        check_at_least(self, 1, "context_size")


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
        check_at_least(self, 1, "embedding_size", "hidden_size", "layer_count")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        hidden = self.hidden_size
        layers = [
            TensorSpec(name=f"lstm.{entry}_l{layer}", shape=shape, layer=f"lstm.l{layer}")
            for layer in range(self.layer_count)
            for entry, shape in (
                ("weight_ih", (4 * hidden, hidden if layer else self.embedding_size)),
                ("weight_hh", (4 * hidden, hidden)),
                ("bias_ih", (4 * hidden,)),
                ("bias_hh", (4 * hidden,)),
            )
        ]
        embedding = tensor("embedding", "weight", len(ALPHABET), self.embedding_size)
        return Schema((embedding, *layers, *linear_tensors("head", len(ALPHABET), hidden)))


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
        check_at_least(self, 1, "model_size", "head_count", "head_size", "layer_count")
        check_at_least(self, 1, "feedforward_size")
        if self.model_size % 2:
            raise ValueError(f"model_size must be even, got {self.model_size}")
        check_below_one(self, "dropout")

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        width = self.model_size
        return Schema(
            (
                tensor("embedding", "weight", len(ALPHABET), width),
                *norm_tensors("norm", width),
                *stacked("blocks", self.layer_count, self._block),
                tensor("head", "weight", len(ALPHABET), width),
            )
        )

    def _block(self, block: str) -> list[TensorSpec]:
        width, inner = self.model_size, self.head_count * self.head_size
        attention = f"{block}.attention"
        return [
            *attention_tensors(attention, model_size=width, inner_size=inner, out_bias=False),
            *norm_tensors(f"{block}.attention_norm", width),
            *feedforward_tensors(f"{block}.feedforward", width, self.feedforward_size, SEQUENTIAL),
            *norm_tensors(f"{block}.feedforward_norm", width),
        ]
