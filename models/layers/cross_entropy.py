"""Linear layer and cross-entropy in one step, a chunk of tokens at a time.

Logits over a vocabulary of 10,000 words are thirty times larger than the features. Here each chunk
of them is turned into its gradient and dropped, so memory never holds the whole ``(tokens, vocab)``
matrix, and each chunk is still in the processor's cache when it is read again.

In float32 the arithmetic is that of ``torch.nn.functional.cross_entropy``, deterministic on one
thread. Under bfloat16 autocast the three matrix products run in bfloat16 and sums in float32.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 1 << 22
"""Logits in one chunk: 16 MiB of float32."""


def linear_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of ``softmax(features @ weight.T + bias)`` in nats.

    Gradients are made in the forward pass, so backward may be called once. ``features``, float32 or
    the autocast type, are ``(tokens, embed)`` with a token at least; ``weight`` is ``(vocab,
    embed)``, ``bias`` ``(vocab,)``, both float32; ``targets`` are int64 in [0, vocab),
    ``(tokens,)``.
    """
    tokens = features.shape[0]
    if tokens < 1 or targets.shape != (tokens,) or features.shape[1] != weight.shape[1]:
        raise ValueError(
            "features (tokens, embed), weight (vocab, embed) and targets (tokens,) must fit with "
            f"tokens >= 1, got {tuple(features.shape)}, {tuple(weight.shape)} and "
            f"{tuple(targets.shape)}"
        )
    loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]  # untyped in torch
        features, weight, bias, targets
    )
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # torch passes its own context object
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
    ) -> Tensor:
        device = features.device.type
        autocast = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if autocast else torch.float32
        layer = _Layer(features, weight, bias, dtype)
        needs_gradient = any(ctx.needs_input_grad)
        # Autocast would undo the choice of types made here.
        with torch.autocast(device, enabled=False):
            loss_sum = features.new_zeros((), dtype=torch.float32)
            for chunk in vocabulary_chunks(len(targets), len(bias)):
                loss_sum += layer.loss_sum(chunk, targets[chunk], with_gradient=needs_gradient)
        ctx.gradients = layer.gradients() if needs_gradient else None
        return loss_sum / len(targets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy allows one backward pass, this is another")
        gradients, ctx.gradients = ctx.gradients, None
        return (*(part.mul_(gradient) for part in gradients), None)


class _Layer:
    """The operands in the type of the products, and the sums of the gradients."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        self.features, self.weight, self.bias = (x.to(dtype) for x in (features, weight, bias))
        self.scale = 1 / len(features)
        self.features_gradient = torch.empty_like(features)
        self.weight_gradient: Tensor | None = None
        self.bias_gradient = torch.zeros_like(bias)

    def loss_sum(self, chunk: slice, targets: Tensor, *, with_gradient: bool) -> Tensor:
        """Return the sum of losses of one chunk and add its gradients to the sums."""
        logits = torch.addmm(self.bias, self.features[chunk], self.weight.t())
        right = targets.unsqueeze(1)
        largest = logits.amax(1)
        own = logits.gather(1, right).squeeze(1)
        probabilities = torch.softmax(logits, 1)
        # The largest probability is exp(largest - lse), never below 1 / vocab: an exact way to the
        # log-sum-exp without another pass over the logits.
        lse = largest.float() - probabilities.amax(1).float().log()
        if with_gradient:
            probabilities.scatter_add_(1, right, -torch.ones_like(right, dtype=logits.dtype))
            self._add_gradients(chunk, probabilities)
        return (lse - own.float()).sum()

    def _add_gradients(self, chunk: slice, logits_gradient: Tensor) -> None:
        self.features_gradient[chunk] = (logits_gradient @ self.weight).mul_(self.scale)
        weight_gradient = logits_gradient.t() @ (self.features[chunk] * self.scale)
        if self.weight_gradient is None:
            self.weight_gradient = weight_gradient.float()
        else:
            self.weight_gradient += weight_gradient
        # Not sum(dtype=float32): that would first copy every logit. Sums are in float32 inside.
        self.bias_gradient.add_(logits_gradient.sum(0), alpha=self.scale)

    def gradients(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients by features, weight and bias."""
        if self.weight_gradient is None:
            raise RuntimeError("gradients must be added before they are read")
        return self.features_gradient, self.weight_gradient, self.bias_gradient


def vocabulary_chunks(tokens: int, vocab: int) -> list[slice]:
    """Split the tokens into near-equal ranges of at most ``CHUNK_ELEMENTS`` logits each.

    A vocabulary larger than a chunk is taken token by token.
    """
    most = max(1, CHUNK_ELEMENTS // vocab)
    count = -(-tokens // most)
    edges = [tokens * part // count for part in range(count + 1)]
    return [slice(start, end) for start, end in pairwise(edges)]
