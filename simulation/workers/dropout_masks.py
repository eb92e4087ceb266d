"""Draw the dropouts of clients that are trained together: each client's own, as if it were alone.

A client's masks come from its own generator, in the order and the shapes in which its network
would draw them by itself, so it drops the same elements in a group of any size. Rows that only pad
a batch drop nothing: they weigh nothing.
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
        """Start each client's draws.

        Args:
            device: Where the masks are needed; draws differ between kinds of device.
        """
        self._dropouts = dropouts
        self._generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
        self._device = device

    def of_step(self, sizes: Sequence[int], width: int) -> list[Tensor]:
        """Return the masks of one step, each of shape ``(clients, width, ...)``.

        Args:
            sizes: Examples of the first clients' batches; the others are done.
            width: Examples of a batch with what pads it.
        """
        masks = []
        for probability, shape in self._dropouts:
            mask = torch.ones((len(sizes), width, *shape), device=self._device)
            for rows, size, generator in zip(mask, sizes, self._generators, strict=False):
                draw_mask(rows[:size], probability, generator)
            masks.append(mask)
        return masks


def dropouts_of(network: nn.Module, *one_example: Any) -> Dropouts:  # Any: whatever it takes.
    """Return what a network drops, found by a pass without dropping anything.

    Args:
        one_example: A batch of one.
    """
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
