"""Measure how fast a process multiplies matrices.

The gain from mixed precision depends on the machine: a share of it says more than a ratio of times.
"""

import math
import time
from typing import NamedTuple

import torch
from torch import Tensor


class Product(NamedTuple):
    """Name a product of matrices: ``(rows, inner)`` by ``(inner, columns)``."""

    rows: int
    inner: int
    columns: int

    @property
    def operations(self) -> int:
        """Return its multiplications and additions."""
        return 2 * self.rows * self.inner * self.columns


def product_gflops(products: list[Product], dtype: torch.dtype, repeats: int) -> float:
    """Return 10^9 operations a second over all products, each at its best, in this process.

    Args:
        products: Shapes to multiply, one after the other.
        dtype: Type of the factors.
        repeats: How often each product is timed.
    """
    seconds = sum(_best_seconds(_factors(product, dtype), repeats) for product in products)
    return sum(product.operations for product in products) / seconds / 1e9


def _factors(product: Product, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(product.rows, product.inner, generator=generator)
    right = torch.randn(product.inner, product.columns, generator=generator)
    return left.to(dtype), right.to(dtype)


@torch.no_grad()
def _best_seconds(factors: tuple[Tensor, Tensor], repeats: int) -> float:
    left, right = factors
    best = math.inf
    for _ in range(1 + repeats):  # the first prepares the product
        started = time.perf_counter()
        torch.matmul(left, right)
        best = min(best, time.perf_counter() - started)
    return best
