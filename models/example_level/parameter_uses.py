"""Compute each example's gradient norm, and sum shortened gradients, without making any.

Where a parameter is used on a row of inputs ``a_t`` and the loss answers with a row of gradients
``g_t``, one example's gradient is ``sum_t g_t a_t^T``. Its norm needs two small matrices of inner
products. The sum over the batch with a factor for each example is one matrix product, as in the
plain backward pass. Separate gradients would take megabytes times the batch.

References:
    [Goodfellow] "Efficient Per-Example Gradient Computations", 2015, arXiv:1510.01799 (norms).
    [Li] ICLR 2022, arXiv:2110.05679 (norms over time steps).
    [Bu] ICML 2023, arXiv:2210.00038 (the clipped sum from what the one backward pass left).
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.linalg import vector_norm

Sums = MutableMapping[str, Tensor]
"""Sum of clipped gradients by parameter name, each of the parameter's shape."""


class ParameterUse(Protocol):
    """One layer's use of its parameters, from which each example's gradient follows."""

    def squared_norms(self) -> Tensor:
        """Return the squared L2 norm of each example's gradient, shape ``(batch,)``."""

    def sizes(self) -> Tensor:
        """Return the sum of the norms of each example's terms, shape ``(batch,)``.

        Terms can cancel, and the rounding errors in their sum are in proportion to this.
        """

    def largest(self) -> Tensor:
        """Return the largest magnitude in each example, or NaN if it holds NaN; ``(batch,)``."""

    def without(self, left_out: Tensor) -> Self:
        """Return the use with zeros for the examples that a mask, ``(batch,)``, leaves out."""

    def add_weighted(self, factors: Tensor, sums: Sums) -> None:
        """Add every example's gradient times its factor, ``(batch,)``, to ``sums`` in place."""


@dataclass(frozen=True)
class AffineUse:
    """A matrix, and a bias or none, used on every row of a sequence.

    Attributes:
        weight: Name of the matrix, shape ``(out, in)``.
        bias: Name of the bias, shape ``(out,)``, or None.
        inputs: Shape ``(batch, time, in)``.
        gradients: By the outputs, shape ``(batch, time, out)``.
    """

    weight: str
    bias: str | None
    inputs: Tensor
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        """Return sum over t, s of (a_t a_s + 1) (g_t g_s); the 1 is the bias."""
        return (self._input_products() * _products(self.gradients)).sum((1, 2))

    def sizes(self) -> Tensor:
        """Return sum over t of |(a_t, 1)| |g_t|."""
        lengths = self._input_products().diagonal(dim1=1, dim2=2).sqrt()
        return (lengths * _lengths(self.gradients)).sum(1)

    def largest(self) -> Tensor:
        """Return the larger of what went in and what came back."""
        return torch.maximum(_largest(self.inputs), _largest(self.gradients))

    def without(self, left_out: Tensor) -> Self:
        """Return zeros for what went in and came back of some examples."""
        inputs, gradients = (_emptied(rows, left_out) for rows in (self.inputs, self.gradients))
        return replace(self, inputs=inputs, gradients=gradients)

    def add_weighted(self, factors: Tensor, sums: Sums) -> None:
        """Add the weighted sum of g_t a_t^T, and of g_t for the bias."""
        weighted = (self.gradients * factors[:, None, None]).flatten(0, 1)
        sums[self.weight].addmm_(weighted.t(), self.inputs.flatten(0, 1))
        if self.bias is not None:
            sums[self.bias].add_(weighted.sum(0))

    def _input_products(self) -> Tensor:
        products = _products(self.inputs)
        return products if self.bias is None else products + 1


@dataclass(frozen=True)
class LookupUse:
    """Rows of a matrix that are looked up.

    Attributes:
        weight: Name of the matrix, shape ``(rows, embed)``.
        rows: Numbers of the rows, int64, shape ``(batch, time)``.
        gradients: By what was looked up, shape ``(batch, time, embed)``.
    """

    weight: str
    rows: Tensor
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        """Return the sum of g_t g_s over places t and s of the same row."""
        same = self.rows[:, :, None] == self.rows[:, None, :]
        return (same * _products(self.gradients)).sum((1, 2))

    def sizes(self) -> Tensor:
        """Return the sum of |g_t|."""
        return _lengths(self.gradients).sum(1)

    def largest(self) -> Tensor:
        """Return the largest of what came back."""
        return _largest(self.gradients)

    def without(self, left_out: Tensor) -> Self:
        """Return zeros for what came back to some examples."""
        return replace(self, gradients=_emptied(self.gradients, left_out))

    def add_weighted(self, factors: Tensor, sums: Sums) -> None:
        """Add each weighted g_t to its row."""
        weighted = self.gradients * factors[:, None, None]
        sums[self.weight].index_add_(0, self.rows.flatten(), weighted.flatten(0, 1))


@dataclass(frozen=True)
class ScaleUse:
    """A scale and a shift of every element of a sequence, as at the end of a layer norm.

    Attributes:
        weight: Name of the scale, shape ``(embed,)``.
        bias: Name of the shift, shape ``(embed,)``.
        inputs: Values to scale, shape ``(batch, time, embed)``.
        gradients: By the outputs, of the same shape.
    """

    weight: str
    bias: str
    inputs: Tensor
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        """Return |sum over t of g_t * a_t|^2 + |sum over t of g_t|^2."""
        scale = (self.gradients * self.inputs).sum(1)
        return scale.square().sum(1) + self.gradients.sum(1).square().sum(1)

    def sizes(self) -> Tensor:
        """Return the sum over t of |g_t * a_t| + |g_t|."""
        scale = _lengths(self.gradients * self.inputs)
        return (scale + _lengths(self.gradients)).sum(1)

    def largest(self) -> Tensor:
        """Return the larger of what went in and what came back."""
        return torch.maximum(_largest(self.inputs), _largest(self.gradients))

    def without(self, left_out: Tensor) -> Self:
        """Return zeros for what went in and came back of some examples."""
        inputs, gradients = (_emptied(rows, left_out) for rows in (self.inputs, self.gradients))
        return replace(self, inputs=inputs, gradients=gradients)

    def add_weighted(self, factors: Tensor, sums: Sums) -> None:
        """Add the weighted sums of g_t * a_t and of g_t."""
        weighted = self.gradients * factors[:, None, None]
        sums[self.weight].add_((weighted * self.inputs).sum((0, 1)))
        sums[self.bias].add_(weighted.sum((0, 1)))


@dataclass(frozen=True)
class OutputUse:
    """An output matrix that scores every word, compared with the right one.

    The gradient by the logits of token t is ``scale_t * differences_t``.

    Attributes:
        weight: Name of the matrix, shape ``(vocab, embed)``; the embedding's if it is tied.
        bias: Name of the bias, shape ``(vocab,)``.
        features: Shape ``(batch, time, embed)``.
        differences: Probability minus 1 for the right word, shape ``(batch, time, vocab)``.
        scales: One over the example's tokens, 0 at padding, shape ``(batch, time)``.
    """

    weight: str
    bias: str
    features: Tensor
    differences: Tensor
    scales: Tensor

    def features_gradient(self, matrix: Tensor) -> Tensor:
        """Return the gradient by the features for the output matrix, ``(batch, time, embed)``."""
        return (self.differences @ matrix).mul_(self.scales.unsqueeze(2))

    def squared_norms(self) -> Tensor:
        """Return as an affine use does; differences are read, not scaled, as they are large."""
        scales = self.scales[:, :, None] * self.scales[:, None, :]
        return ((_products(self.features) + 1) * _products(self.differences) * scales).sum((1, 2))

    def sizes(self) -> Tensor:
        """Return the sum over t of |(h_t, 1)| |g_t|."""
        lengths = (self.features.square().sum(2) + 1).sqrt() * _lengths(self.differences)
        return (lengths * self.scales).sum(1)

    def products_with(self, lookup: LookupUse) -> Tensor:
        """Return the inner product with a look-up's gradient of the same matrix, ``(batch,)``.

        Sum over t, s of (g_t h_s) times what token s says about the word read at t.
        """
        words = lookup.rows[:, None, :].expand(-1, self.differences.shape[1], -1)
        at_words = self.differences.gather(2, words) * self.scales.unsqueeze(2)
        return (at_words * (self.features @ lookup.gradients.transpose(1, 2))).sum((1, 2))

    def largest(self) -> Tensor:
        """Return the largest feature; differences of probabilities are at most 1."""
        return _largest(self.features)

    def without(self, left_out: Tensor) -> Self:
        """Return zeros for features and differences of some examples."""
        features = _emptied(self.features, left_out)
        return replace(self, features=features, differences=_emptied(self.differences, left_out))

    def add_weighted(self, factors: Tensor, sums: Sums) -> None:
        """Add the weighted sum of g_t h_t^T, and of g_t for the bias."""
        weights = self.scales * factors.unsqueeze(1)
        differences = self.differences.flatten(0, 1)
        weighted = (self.features * weights.unsqueeze(2)).flatten(0, 1)
        sums[self.weight].addmm_(differences.t(), weighted)
        sums[self.bias].addmv_(differences.t(), weights.flatten())


def _products(rows: Tensor) -> Tensor:
    """Return the inner products within each example, ``(batch, time, time)``."""
    return torch.bmm(rows, rows.transpose(1, 2))


def _lengths(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row, shape ``(batch, time)``."""
    lengths: Tensor = vector_norm(rows, dim=2)
    return lengths


def _largest(rows: Tensor) -> Tensor:
    """Return the largest magnitude in each example, shape ``(batch,)``, without a copy of it."""
    # Two passes: torch.aminmax takes eight times as long over a part of the axes.
    return torch.maximum(rows.amax((1, 2)), -rows.amin((1, 2)))


def _emptied(rows: Tensor, left_out: Tensor) -> Tensor:
    """Return rows with zeros, whatever they held, for some examples."""
    return rows.masked_fill(left_out[:, None, None], 0)
