"""Let every layer learn at the same speed: He's initialisation as a scale at run time.

A scaled layer computes with the effective weight ŵ = w·sqrt(2 / fan-in), where the optimiser steps
the raw weight w, drawn from N(0, 1). All raw weights then have one size, so one learning rate fits
wide and narrow layers, and a layer that is added later is no louder than the others.

Networks here hold ŵ, and `edge_client.descent.optimisers` turns a raw step Δ into Δ·sqrt(2 /
fan-in). That is the same training without a multiplication in every pass, and whatever is sent,
clipped, noised, averaged or exported is effective.

References:
    [FedDT-TTS] arXiv:2107.08795, section 2.1: ŵ = w/z with z from He's initialiser; read as z =
        sqrt(fan-in / 2), since dividing by He's standard deviation would explode.
    [ProGAN] Karras et al., ICLR 2018, arXiv:1710.10196, section 4.1: the same as here.
    [He] He et al., ICCV 2015, arXiv:1502.01852.
"""

import math

import torch
from torch import Tensor, nn


class HeLinear(nn.Linear):
    """A linear layer whose weight is stepped in raw units."""


class HeConvolution(nn.Conv1d):
    """A convolution over time whose weight is stepped in raw units."""


def runtime_scale(weight: Tensor) -> float:
    """Return sqrt(2 / fan-in), effective over raw, of a weight of shape ``(out, *in)``."""
    return math.sqrt(2 / weight[0].numel())


def runtime_scales(network: nn.Module) -> dict[str, float]:
    """Return the scale of each scaled layer's weight by its name; biases have none."""
    return {
        f"{name}.weight": runtime_scale(module.weight)
        for name, module in network.named_modules()
        if isinstance(module, HeLinear | HeConvolution)
    }


@torch.no_grad()
def draw_scaled(network: nn.Module, generator: torch.Generator) -> None:
    """Draw every parameter anew, in module order and in place.

    Raw weights of scaled layers and tables are from N(0, 1), their biases 0; norms scale by 1.
    Parameters of other kinds stay as they are.
    """
    for module in network.modules():
        match module:
            case HeLinear() | HeConvolution():
                scale = runtime_scale(module.weight)
                module.weight.normal_(generator=generator).mul_(scale)
                if module.bias is not None:
                    module.bias.zero_()
            case nn.Embedding():
                module.weight.normal_(generator=generator)
            case nn.LayerNorm():
                module.weight.fill_(1)
                module.bias.zero_()
