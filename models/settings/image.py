"""Settings of the image classifiers, and the schemas they imply. No torch.

References:
    [FedTP] Li et al., TNNLS 2023, arXiv:2211.01572, section IV-A: the tiny ViT and the ConvNet.
    [FedBN] Li et al., ICLR 2021, arXiv:2102.07623: a batch norm after each layer but the last.
"""

import math
from typing import ClassVar

from models.settings.bounds import check_at_least, check_below_one
from models.settings.family import Family
from models.settings.growing_layers import GrowingLayers, LayerStack
from models.vector.schema import Schema, TensorSpec
from models.vector.tensor_lists import (
    attention_tensors,
    batch_norm_tensors,
    feedforward_tensors,
    linear_tensors,
    norm_tensors,
    stacked,
    tensor,
)

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)
"""Mean and standard deviation of CIFAR-10's training pixels, each channel in [0, 1]."""


class _ImageFamily(Family, frozen=True, kw_only=True):
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
        check_at_least(self, 2, "class_count")
        check_at_least(self, 1, "image_size", "channel_count")
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
        check_at_least(self, 1, "patch_size", "model_size", "head_count", "head_size")
        check_at_least(self, 1, "layer_count", "feedforward_size")
        if self.image_size % self.patch_size:
            raise ValueError(
                f"patch_size must divide image_size {self.image_size}, got {self.patch_size}"
            )
        check_below_one(self, "dropout")

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
        width = self.model_size
        return Schema(
            (
                TensorSpec(name="class_token", shape=(width,), layer="class_token"),
                *linear_tensors("patches", width, self.patch_elements),
                tensor("position", "weight", self.patch_count + 1, width),
                *stacked("blocks", self.layer_count, self._block),
                *norm_tensors("norm", width),
                *linear_tensors("head", self.class_count, width),
            )
        )

    def _block(self, block: str) -> list[TensorSpec]:
        width, inner = self.model_size, self.head_count * self.head_size
        return [
            *norm_tensors(f"{block}.attention_norm", width),
            *attention_tensors(f"{block}.attention", model_size=width, inner_size=inner),
            *norm_tensors(f"{block}.feedforward_norm", width),
            *feedforward_tensors(f"{block}.feedforward", width, self.feedforward_size),
        ]


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
        for name in ("kernel_counts", "hidden_sizes"):
            if min(getattr(self, name)) < 1:
                raise ValueError(f"{name} must be >= 1, got {min(getattr(self, name))}")
        check_at_least(self, 1, "kernel_size")
        check_at_least(self, 0, "padding")
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
        first, second = self.kernel_counts
        third, fourth = self.hidden_sizes
        kernel = (self.kernel_size, self.kernel_size)

        def norm(number: int, width: int) -> list[TensorSpec]:
            return batch_norm_tensors(f"batch_norm{number}", width) if self.batch_norm else []

        return Schema(
            (
                tensor("convolution1", "weight", first, self.channel_count, *kernel),
                tensor("convolution1", "bias", first),
                *norm(1, first),
                tensor("convolution2", "weight", second, first, *kernel),
                tensor("convolution2", "bias", second),
                *norm(2, second),
                *linear_tensors("hidden1", third, self.flat_size),
                *norm(3, third),
                *linear_tensors("hidden2", fourth, third),
                *norm(4, fourth),
                *linear_tensors("head", self.class_count, fourth),
            )
        )
