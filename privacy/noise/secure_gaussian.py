"""Calibrated Gaussian noise from a cryptographic generator, on a grid.

A draw is AES-256 in counter mode under a key of its own, turned into normals by Box and Muller in
float64, in blocks that stay in cache, on two threads; the bits do not depend on the threads.

Floating point. Naive Gaussian noise leaks in the last bits: which floats ``value + noise`` can be
depends on ``value`` ([Mironov], [Holohan]). Here the value is rounded to a multiple of a step that
is a power of two, so is the noise, and both are added exactly. Since rounding to the grid after
adding is the same as adding two multiples, the answer is the ideal real-valued Gaussian mechanism
on the rounded value, followed by rounding, which costs no privacy. Rounding a vector of d elements
moves it by up to step * sqrt(d) / 2, so neighbours come apart by step * sqrt(d) more: that is
added to the sensitivity (``Calibration.noise_std``), a thousandth of it. Later steps (conversion
to float32, the server's step) see only the grid point.

Not covered: logarithm, sine and cosine are those of float64, not exact, so a grid point's
probability is off by about 2^-28 of itself; draws end at 9.4 standard deviations, beyond which
lies a chance of 5e-21 an element; the time a draw takes is the same for every value but is not
proved to be. A discrete sampler with exact arithmetic ([Canonne]) would close the first two.

References:
    [Box, Muller] "A Note on the Generation of Random Normal Deviates", 1958.
    [Mironov] "On significance of the least significant bits for differential privacy", CCS 2012.
    [Holohan] Holohan, Braghin, "Secure random sampling in differential privacy", 2021,
        arXiv:2107.10138.
    [Canonne] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy",
        NeurIPS 2020, arXiv:2004.00010.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

KEY_BYTES = 32

_BLOCK = 1 << 15  # Elements drawn at a time: with what they are made from, 1 MiB.
_HALF = _BLOCK // 2
_THREADS = 2
# The grid's share of the sensitivity: rounding costs a thousandth more noise.
_GRID_SHARE = 2.0**-10


class NoiseKeys(Protocol):
    """A source of the keys of draws."""

    @property
    def repeats(self) -> bool:
        """Return whether the same label gives the same key again."""

    def draw(self, label: str, /) -> bytes:
        """Return ``KEY_BYTES`` secret bytes for a new draw, labelled such as ``round 3``."""


class SystemKeys:
    """Keys from the operating system's generator: no two draws are ever the same."""

    repeats = False

    def draw(self, label: str, /) -> bytes:
        """Return fresh bytes, whatever the label."""
        return os.urandom(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The noise that hides one client: z times the sensitivity on a grid.

    Its standard deviation is in parameter units; the grid's step is a power of two.
    """

    noise_std: float
    step: float


def calibrate(*, noise_multiplier: float, sensitivity: float, element_count: int) -> Calibration:
    """Return the noise for a vector of d >= 1 elements and a known L2 sensitivity."""
    for name, value in (("noise_multiplier", noise_multiplier), ("sensitivity", sensitivity)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value}")
    if element_count < 1:
        raise ValueError(f"element_count must be >= 1, got {element_count}")
    root = math.sqrt(element_count)
    step = 2.0 ** math.floor(math.log2(sensitivity * _GRID_SHARE / root))
    return Calibration(noise_multiplier * (sensitivity + step * root), step)


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of a whole vector of noise, added (sign 1) or taken out again (-1).

    The same key, ``KEY_BYTES`` secret bytes, draws the same noise.
    """

    key: bytes
    sign: int = 1


def add_gaussian(values: Tensor, calibration: Calibration, draws: Sequence[Draw]) -> Tensor:
    """Round a vector to the grid and add draws of N(0, noise_std²) on the grid, in place.

    The values are contiguous, finite float32 or float64 on the CPU, shape ``(elements,)``. Raises
    ValueError if a key has not ``KEY_BYTES`` bytes.
    """
    for draw in draws:
        _check_key(draw.key)
    blocks = torch.split(values, _BLOCK)
    _on_threads(len(blocks), lambda share: _work(blocks, share, calibration, draws))
    return values


def each_block(
    element_count: int, std: float, key: bytes, use: Callable[[slice, Tensor], None]
) -> None:
    """Draw N(0, std²) for a whole vector, on no grid, and hand it out in blocks, on two threads.

    ``use`` gets where a block lies and its normals, float64, which it may change and which are
    valid until it returns. ValueError if the key has not ``KEY_BYTES`` bytes.
    """
    _check_key(key)

    def work(share: Iterable[int]) -> None:
        memory = _Memory()
        for index in share:
            where = slice(index * _BLOCK, min((index + 1) * _BLOCK, element_count))
            use(where, memory.normals(key, index, std)[: where.stop - where.start])

    _on_threads(-(-element_count // _BLOCK), work)


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a noise key must have {KEY_BYTES} bytes, got {len(key)}")


def _on_threads(block_count: int, work: Callable[[Iterable[int]], None]) -> None:
    """Share blocks out among threads by their index; one block needs none."""
    if block_count == 1:
        work(range(1))
        return
    with ThreadPoolExecutor(_THREADS) as threads:
        shares = [range(first, block_count, _THREADS) for first in range(_THREADS)]
        for _ in threads.map(work, shares):
            pass


def _work(
    blocks: Sequence[Tensor], share: Iterable[int], calibration: Calibration, draws: Sequence[Draw]
) -> None:
    """Do one thread's blocks; what a block gets follows from its index alone."""
    memory, exact = _Memory(), torch.empty(_BLOCK, dtype=torch.float64)
    for index in share:
        block = blocks[index]
        total = exact[: block.numel()]
        # A power of two only moves the exponent, and multiples up to 2^53 add without rounding.
        total.copy_(block).mul_(1 / calibration.step).round_()
        for draw in draws:
            normals = memory.normals(draw.key, index, calibration.noise_std / calibration.step)
            total.add_(normals[: block.numel()].round_(), alpha=draw.sign)
        block.copy_(total.mul_(calibration.step))


class _Memory:
    """Memory, used again, into which blocks of normals are drawn."""

    def __init__(self) -> None:
        self._random = torch.empty(_BLOCK, dtype=torch.int64)
        self._bytes = self._random.numpy().data.cast("B")
        self._zeros = bytes(len(self._bytes))
        self._radius = torch.empty(_HALF, dtype=torch.float64)
        self._angle = torch.empty(_HALF, dtype=torch.float64)
        self._normals = torch.empty(_BLOCK, dtype=torch.float64)

    def normals(self, key: bytes, index: int, std: float) -> Tensor:
        """Return the block's normals, float64, shape ``(_BLOCK,)``, valid until the next call."""
        _counter_mode(key, index).update_into(self._zeros, self._bytes)
        self._fill_radius(std)
        # A signed integer over 2^63 is uniform in [-1, 1): times pi, every direction once.
        self._angle.copy_(self._random[_HALF:]).mul_(math.pi * 2.0**-63)
        cosines, sines = self._normals[:_HALF], self._normals[_HALF:]
        torch.cos(self._angle, out=cosines).mul_(self._radius)
        torch.sin(self._angle, out=sines).mul_(self._radius)
        return self._normals

    def _fill_radius(self, std: float) -> None:
        """Fill in std * sqrt(-2 ln u), u uniform in (0, 1] with 63 bits."""
        uniform = self._random[:_HALF].bitwise_and_(2**63 - 1)
        radius = self._radius.copy_(uniform).add_(0.5).mul_(2.0**-63).numpy()
        # numpy's logarithm is three times as fast here as torch's.
        np.log(radius, out=radius)
        np.multiply(radius, -2 * std * std, out=radius)
        np.sqrt(radius, out=radius)


def _counter_mode(key: bytes, index: int) -> CipherContext:
    # 2^64 counters a block: no two blocks of one key share a byte of the stream.
    counter = (index << 64).to_bytes(16, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
