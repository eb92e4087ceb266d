"""The ConvNet of FedTP's baselines: two convolutions and three linear layers.

References:
    [FedTP] Li et al., arXiv:2211.01572, section IV-A; sizes as in pFedHN's published code.
    [FedBN] Li et al., ICLR 2021, arXiv:2102.07623: a batch norm after each layer but the last.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers.batch_norm import BatchNorm
from models.layers.initialisation import draw_layers
from models.networks.classifier import Pixels
from models.settings.image import ConvNetSettings


class ConvNet(nn.Module):
    """(convolution -> norm -> ReLU -> halving) twice, (linear -> norm -> ReLU) twice, head.

    Norms exist with ``batch_norm`` only.
    """

    def __init__(self, settings: ConvNetSettings) -> None:
        super().__init__()
        first, second = settings.kernel_counts
        third, fourth = settings.hidden_sizes
        kernel, padding = settings.kernel_size, settings.padding
        norm = BatchNorm if settings.batch_norm else _no_norm
        self.pixels = Pixels(settings.image_size, settings.pixel_mean, settings.pixel_std)
        self.convolution1 = nn.Conv2d(settings.channel_count, first, kernel, padding=padding)
        self.batch_norm1 = norm(first)
        self.convolution2 = nn.Conv2d(first, second, kernel, padding=padding)
        self.batch_norm2 = norm(second)
        self.hidden1 = nn.Linear(settings.flat_size, third)
        self.batch_norm3 = norm(third)
        self.hidden2 = nn.Linear(third, fourth)
        self.batch_norm4 = norm(fourth)
        self.head = nn.Linear(fourth, settings.class_count)

    def features(self, pixels: Tensor) -> Tensor:
        """Return the last hidden layer, float32, ``(batch, embed)``, of ``Pixels``' input."""
        values = self.pixels(pixels)
        values = self.batch_norm1(self.convolution1(values)).relu()
        values = functional.max_pool2d(values, 2)
        values = self.batch_norm2(self.convolution2(values)).relu()
        values = functional.max_pool2d(values, 2).flatten(1)
        values = self.batch_norm3(self.hidden1(values)).relu()
        return self.batch_norm4(self.hidden2(values)).relu()  # type: ignore[no-any-return]  # modules return Any

    def initialise(self, generator: torch.Generator) -> None:
        """Draw layers as the framework does; norms have seen nothing."""
        draw_layers(self, generator)
        for module in self.modules():
            if isinstance(module, BatchNorm):
                module.initialise()


def _no_norm(channel_count: int) -> nn.Module:
    return nn.Identity()
