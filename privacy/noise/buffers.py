"""Noise that is correlated over rounds through a few buffers of the model's size, drawn as it goes.

Round t's noise is w_t = (C^-1 z)_t of `privacy.accounting.toeplitz`: its own draw z_t less what the
buffers feed back,

    w_t = z_t - Σ_i ω_i b_i,    then b_i ← θ_i b_i + w_t for every i ([McMahan], Algorithm 3).

The content of the buffers before a round follows from the keys of the draws before it and nothing
else: no aggregate enters. So they are kept in memory alone. A process that begins anew, or is asked
for a round again, draws the rounds before it once more and holds the same bits: there is no file
that could be lost, leak, or disagree with the store.

References:
    [McMahan] McMahan, Xu, Zhang, "A Hassle-free Algorithm for Private Learning in Practice: Don't
        Use Tree Aggregation, Use BLTs", EMNLP 2024, arXiv:2408.08868.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from privacy.noise.secure_gaussian import Calibration, each_block

KeyOf = Callable[[int], bytes]
"""The secret key of a round's draw, by its number from 1."""


@dataclass(frozen=True, slots=True)
class BufferTerms:
    """The terms that the noise of every round of a run follows from, beside the keys."""

    decays: tuple[float, ...]
    scales: tuple[float, ...]
    calibration: Calibration
    element_count: int


class NoiseBuffers:
    """The buffers of one run as some round leaves them; 8 bytes an element and buffer."""

    def __init__(self, terms: BufferTerms) -> None:
        self.terms = terms
        self._held: list[Tensor] = []
        # Rounds that the buffers hold; None while one is half folded in.
        self._rounds: int | None = None

    def add_to(self, values: Tensor, round_number: int, key_of: KeyOf) -> None:
        """Round a vector to the grid and add a round's noise on the grid, in place.

        The values are contiguous, finite float32 or float64 on the CPU, shape ``(elements,)``. The
        same round may be asked for again. Every other round than the next, at least 1, costs as
        many draws as there are rounds before it.
        """
        self._hold(round_number - 1, key_of)
        step = self.terms.calibration.step

        def add(where: slice, normals: Tensor) -> None:
            block = values[where]
            # A power of two only moves the exponent, and multiples up to 2^53 add exactly.
            total = block.double().mul_(1 / step).round_()
            block.copy_(total.add_(self._noise(where, normals)).mul_(step))

        self._each_block(key_of(round_number), add)

    def _hold(self, rounds: int, key_of: KeyOf) -> None:
        """Fold in the noise of every round up to one, from the first if it went past that."""
        if self._rounds is None or self._rounds > rounds:
            shape = self.terms.element_count
            self._held = [torch.zeros(shape, dtype=torch.float64) for _ in self.terms.decays]
            self._rounds = 0
        for number in range(self._rounds + 1, rounds + 1):
            self._rounds = None
            self._each_block(key_of(number), self._fold)
            self._rounds = number

    def _each_block(self, key: bytes, use: Callable[[slice, Tensor], None]) -> None:
        calibration = self.terms.calibration
        each_block(self.terms.element_count, calibration.noise_std / calibration.step, key, use)

    def _noise(self, where: slice, normals: Tensor) -> Tensor:
        """Return w_t in grid steps, whole numbers, in the draw's memory."""
        for scale, held in zip(self.terms.scales, self._held, strict=True):
            # Two roundings, never one fused step: the same bits on every processor.
            normals.sub_(held[where].mul(scale))
        return normals.round_()

    def _fold(self, where: slice, normals: Tensor) -> None:
        noise = self._noise(where, normals)
        for decay, held in zip(self.terms.decays, self._held, strict=True):
            held[where].mul_(decay).add_(noise)
