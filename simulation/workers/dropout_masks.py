"""Draw the dropouts of clients that are trained together: each client's own, as if it were alone.

A client's masks come from its own generator in the order and shapes of its network's own calls, so
they are the same in a group of any size. Padding rows drop nothing.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from models.layers.dropout import Dropout, draw_mask

Dropouts = Sequence[tuple[float, tuple[int, ...]]]
"""Every call of a dropout in a forward pass: its probability, and the shape of one example."""


class DropoutMasks:
    """The masks of a group, drawn step by step."""

    def __init__(self, dropouts: Dropouts, seeds: Sequence[int], device: torch.device) -> None:
        """Start each client's draws on the device; they differ between kinds of device."""
        self._dropouts = dropouts
        self._generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
        self._device = device

    def of_step(self, sizes: Sequence[int], width: int) -> list[Tensor]:
        """Return the masks of one step, each of shape ``(clients, width, ...)``.

        ``sizes`` are the batch sizes of the first clients, the others being done.
        """
        masks = []
        for probability, shape in self._dropouts:
            mask = torch.ones((len(sizes), width, *shape), device=self._device)
            for rows, size, generator in zip(mask, sizes, self._generators, strict=False):
                draw_mask(rows[:size], probability, generator)
            masks.append(mask)
        return masks


def dropouts_of(network: nn.Module, *one_example: Any) -> Dropouts:  # Any: whatever it takes.
    """Return a network's dropouts, found by a pass over a batch of one that drops nothing."""
    found: list[tuple[float, tuple[int, ...]]] = []

    def note(module: Dropout, inputs: tuple[Tensor]) -> None:
        found.append((module.probability, tuple(inputs[0].shape[1:])))

    dropouts = [module for module in network.modules() if isinstance(module, Dropout)]
    handles = [module.register_forward_pre_hook(note) for module in dropouts if module.probability]
    network.eval()
    with torch.no_grad():
        network(*one_example)
    network.train()
    for handle in handles:
        handle.remove()
    return found
