"""The step from pixels to numbers that all image classifiers begin with."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

LARGEST_PIXEL = 255


class Pixels(nn.Module):
    """Bytes scaled to [0, 1], then each channel normalised; nothing here is trained or travels.

    Attributes:
        shape: Height, width and channels of an image.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, image_size: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.shape = (image_size, image_size, len(mean))
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return images normalised, ``(batch, channels, height, width)``.

        ``pixels`` are uint8, shape ``(batch, height, width, channels)``.
        """
        return ((pixels.float() / LARGEST_PIXEL - self.mean) / self.std).permute(0, 3, 1, 2)
