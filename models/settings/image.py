"""Settings of the image classifiers, and the schemas they imply. No torch.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV-A: the tiny ViT and the ConvNet.
    [FedBN] Li et al., ICLR 2021, arXiv:2102.07623: a batch norm after each layer but the last.
"""

import math
from typing import ClassVar

import msgspec

from models.settings.growing_layers import GrowingLayers, LayerStack
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    batch_norm_tensors,
    check_at_least,
    check_dropout,
    linear_tensors,
    norm_tensors,
    tensor,
)

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)
"""Mean and standard deviation of CIFAR-10's training pixels, each channel in [0, 1]."""


class _ImageFamily(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="family"
):
    """The settings that every image classifier has.

    Attributes:
        class_count: Classes it tells apart; labels are in [0, class_count).
        image_size: Height and width in pixels.
        channel_count: Colours of a pixel.
        pixel_mean: Subtracted from each channel, pixels scaled to [0, 1]; one value a channel.
        pixel_std: Each channel is divided by it, as above.
    """

    class_count: int
    image_size: int = 32
    channel_count: int = 3
    pixel_mean: tuple[float, ...] = CIFAR_MEAN
    pixel_std: tuple[float, ...] = CIFAR_STD

    def __post_init__(self) -> None:
        check_at_least("class_count", self.class_count, 2)
        check_at_least("image_size", self.image_size, 1)
        check_at_least("channel_count", self.channel_count, 1)
        for name in ("pixel_mean", "pixel_std"):
            values = getattr(self, name)
            if len(values) != self.channel_count or not all(map(math.isfinite, values)):
                raise ValueError(
                    f"{name} must have {self.channel_count} finite values, one a channel, "
                    f"got {list(values)}"
                )
        if not min(self.pixel_std) > 0:
            raise ValueError(f"pixel_std must be > 0, got {list(self.pixel_std)}")


class VitSettings(_ImageFamily, frozen=True, kw_only=True, tag="vit"):
    """Vision Transformer over patches, with a class token ([FedTP] section IV-A).

    Attributes:
        patch_size: Height and width of a patch in pixels; divides ``image_size``.
        model_size: Width of the residual stream.
        head_count: Attention heads in each block.
        head_size: Width of one head; heads times it need not be ``model_size``.
        layer_count: Blocks.
        feedforward_size: Hidden width of each block's feed-forward network.
        dropout: Probability in [0, 1) of dropping an element, in training.
    """

    growing: ClassVar[GrowingLayers] = GrowingLayers(
        stacks=(LayerStack(name="blocks", setting="layer_count"),),
        residual_outputs=("attention.to_out", "feedforward.to_out"),
        norms_first=True,
    )

    patch_size: int = 4
    model_size: int = 128
    head_count: int = 8
    head_size: int = 64
    layer_count: int = 8
    feedforward_size: int = 256
    dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("patch_size", "model_size", "head_count", "head_size", "layer_count"):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("feedforward_size", self.feedforward_size, 1)
        if self.image_size % self.patch_size:
            raise ValueError(
                f"patch_size must divide image_size {self.image_size}, got {self.patch_size}"
            )
        check_dropout(self.dropout)

    @property
    def patch_count(self) -> int:
        """Return the number of patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def patch_elements(self) -> int:
        """Return the number of values in one patch."""
        return self.patch_size**2 * self.channel_count

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _vit_schema(self)


class ConvNetSettings(_ImageFamily, frozen=True, kw_only=True, tag="convnet"):
    """Two convolutions and three linear layers, the ConvNet of FedTP's baselines.

    Attributes:
        kernel_counts: Channels after the first and the second convolution.
        kernel_size: Height and width of a convolution, in pixels.
        padding: Pixels of zeros around what is convolved; 2 keeps the size with kernels of 5.
        hidden_sizes: Widths of the first and the second linear layer.
        batch_norm: Whether a batch norm follows each layer but the last ([FedBN]).
    """

    kernel_counts: tuple[int, int] = (16, 32)
    kernel_size: int = 5
    padding: int = 0
    hidden_sizes: tuple[int, int] = (120, 84)
    batch_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for count in self.kernel_counts:
            check_at_least("kernel_counts", count, 1)
        for size in self.hidden_sizes:
            check_at_least("hidden_sizes", size, 1)
        check_at_least("kernel_size", self.kernel_size, 1)
        check_at_least("padding", self.padding, 0)
        if self._halved(self.image_size) < 1 or self.last_size < 1:
            raise ValueError(
                f"image_size must leave a pixel after two convolutions of {self.kernel_size} and "
                f"two halvings, got {self.image_size}; raise padding, now {self.padding}"
            )

    @property
    def last_size(self) -> int:
        """Return height and width after both convolutions."""
        return self._halved(self._halved(self.image_size))

    @property
    def flat_size(self) -> int:
        """Return the number of values that the first linear layer reads."""
        return self.kernel_counts[1] * self.last_size**2

    def _halved(self, size: int) -> int:
        return (size + 2 * self.padding - self.kernel_size + 1) // 2

    def schema(self) -> Schema:
        """Return the tensors in state-dict order, every one ``shared``."""
        return _convnet_schema(self)


def _convnet_schema(settings: ConvNetSettings) -> Schema:
    first, second = settings.kernel_counts
    third, fourth = settings.hidden_sizes
    kernel = (settings.kernel_size, settings.kernel_size)

    def norm(number: int, width: int) -> list[TensorSpec]:
        return batch_norm_tensors(f"batch_norm{number}", width) if settings.batch_norm else []

    return Schema(
        (
            tensor("convolution1", "weight", first, settings.channel_count, *kernel),
            tensor("convolution1", "bias", first),
            *norm(1, first),
            tensor("convolution2", "weight", second, first, *kernel),
            tensor("convolution2", "bias", second),
            *norm(2, second),
            *linear_tensors("hidden1", third, settings.flat_size),
            *norm(3, third),
            *linear_tensors("hidden2", fourth, third),
            *norm(4, fourth),
            *linear_tensors("head", settings.class_count, fourth),
        )
    )


def _vit_schema(settings: VitSettings) -> Schema:
    width = settings.model_size
    blocks = [
        spec
        for block in range(settings.layer_count)
        for spec in _vit_block(f"blocks.{block}", settings)
    ]
    return Schema(
        (
            TensorSpec(name="class_token", shape=(width,), layer="class_token"),
            *linear_tensors("patches", width, settings.patch_elements),
            tensor("position", "weight", settings.patch_count + 1, width),
            *blocks,
            *norm_tensors("norm", width),
            *linear_tensors("head", settings.class_count, width),
        )
    )


def _vit_block(block: str, settings: VitSettings) -> list[TensorSpec]:
    width, inner = settings.model_size, settings.head_count * settings.head_size
    return [
        *norm_tensors(f"{block}.attention_norm", width),
        *attention_tensors(f"{block}.attention", model_size=width, inner_size=inner),
        *norm_tensors(f"{block}.feedforward_norm", width),
        *linear_tensors(f"{block}.feedforward.to_hidden", settings.feedforward_size, width),
        *linear_tensors(f"{block}.feedforward.to_out", width, settings.feedforward_size),
    ]
