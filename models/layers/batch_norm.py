"""Batch normalisation whose five entries are float32 and travel like every other tensor.

References:
    [FedBN] Li et al., ICLR 2021, arXiv:2102.07623: all five stay on the device.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

MOMENTUM = 0.1
"""Share of a new batch in the running statistics."""


class BatchNorm(nn.Module):
    """A norm of each channel over a batch in training, by running statistics in evaluation.

    A batch of one image says nothing of how images vary. It is normalised by the running statistics
    and leaves them as they are, so a client with one image can train.

    Attributes:
        weight: Scale of each channel, shape ``(channels,)``.
        bias: Shift of each channel, shape ``(channels,)``.
        running_mean: Shape ``(channels,)``; a buffer.
        running_var: Unbiased, shape ``(channels,)``; a buffer.
        batch_count: Batches that the running statistics have seen, float32, shape ``(1,)``; a
            buffer. In a clipped update it would outweigh everything that was learnt.
    """

    running_mean: Tensor
    running_var: Tensor
    batch_count: Tensor

    def __init__(self, channel_count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channel_count))
        self.bias = nn.Parameter(torch.empty(channel_count))
        self.register_buffer("running_mean", torch.empty(channel_count))
        self.register_buffer("running_var", torch.empty(channel_count))
        self.register_buffer("batch_count", torch.empty(1))

    def forward(self, values: Tensor) -> Tensor:
        """Return ``(batch, channels)`` or ``(batch, channels, height, width)``, normalised."""
        learns = self.training and len(values) > 1
        if learns:
            self.batch_count.add_(1)
        return functional.batch_norm(
            values,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=learns,
            momentum=MOMENTUM,
        )

    @torch.no_grad()
    def initialise(self) -> None:
        """Scale by 1, shift by 0, and forget all batches."""
        for ones in (self.weight, self.running_var):
            ones.fill_(1)
        for zeros in (self.bias, self.running_mean, self.batch_count):
            zeros.zero_()
