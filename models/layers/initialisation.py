"""Draw first parameters from a given generator, as the framework would from its own."""

import math

import torch
from torch import Tensor, nn


@torch.no_grad()
def draw_layers(network: nn.Module, generator: torch.Generator) -> None:
    """Draw every linear, convolution and table, in module order; norms scale by 1 and shift by 0.

    Linear layers and convolutions, biases too, are drawn from U(-1/sqrt(n), 1/sqrt(n)) where n
    inputs go into one output, and tables from N(0, 1). Other parameters stay as they are.
    """
    for module in network.modules():
        match module:
            case nn.Linear() | nn.Conv1d() | nn.Conv2d():
                bound = 1 / math.sqrt(module.weight[0].numel())
                for parameter in module.parameters(recurse=False):
                    parameter.uniform_(-bound, bound, generator=generator)
            case nn.Embedding():
                module.weight.normal_(generator=generator)
            case nn.LayerNorm():
                _draw_nothing(module.weight, module.bias)


@torch.no_grad()
def draw_glorot(network: nn.Module, generator: torch.Generator) -> None:
    """Draw every matrix from U(-b, b), b = sqrt(6 / (rows + columns)); biases 0, norms 1."""
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            bound = math.sqrt(6 / sum(parameter.shape))
            parameter.uniform_(-bound, bound, generator=generator)
        else:
            parameter.fill_(0 if name.endswith("bias") else 1)


def _draw_nothing(weight: Tensor, bias: Tensor) -> None:
    weight.fill_(1)
    bias.zero_()
