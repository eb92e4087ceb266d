"""Mode ``ftrl``, mechanism ``blt``: the noise of a round takes back part of the noise before it.

A model holds the sum of its rounds' noise, and far less of it than of independent draws at the same
ρ (`privacy.accounting.toeplitz` has mechanism and account, `privacy.noise.buffers` the drawing).

Floating point. As in `privacy.noise.secure_gaussian`, aggregates and noise lie on a grid; here all
is counted in its steps. Let g_t be round t's rounded aggregate, w_t the whole number that was added
and y_t = g_t + w_t what is released. The noise is w_t = round(z_t - f_t), where the feedback f_t is
the sum over s < t of c_(t-s) w_s, C's column being c. Since g_t is a whole number,

    y_t = round(g_t + z_t - f_t) = round((C g + z)_t - Σ_(s<t) c_(t-s) y_s).

So every release follows from the ideal mechanism C g + z with real z and from the releases before:
post-processing, whatever the rounding, because the buffers are fed with the noise as it was added
and not as it was drawn. Rounding brings one person's aggregates apart by step * sqrt(d) more a
round in which they take part, which `calibrate` counts.

f_t is computed in float64. With m buffers over n rounds it errs by less than (2n + m) 2^-52 of the
largest number that a buffer held: that is 10 standard deviations of √n draws, but for a chance
below 10^-20 an element. For 2,000 rounds of 10 million parameters at z = 7 the errors of all rounds
have a norm below a thousandth of one round's sensitivity (measured: below a billionth). A
thousandth is added to it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from privacy.accounting.events import Adjacency
from privacy.noise.buffers import BufferTerms, NoiseBuffers
from privacy.noise.calibrated_settings import TreeNoise
from privacy.noise.mode import CalibratedRound, NoiseMode
from privacy.noise.secure_gaussian import calibrate
from privacy.noise.tree import DerivedKeys

_FEEDBACK_SHARE = 2.0**-10
"""Share of a round's sensitivity that is added for the rounding of the feedback."""


@dataclass(frozen=True)
class BufferedGaussian(NoiseMode):
    """The coordinator's noise on aggregates, correlated over rounds through buffers.

    Guarantee and neighbours are those of ``TreeGaussian``.
    """

    settings: TreeNoise

    @property
    def adjacency(self) -> Adjacency | None:
        """Return the neighbouring relation that the sensitivity is asked for."""
        return self.settings.adjacency

    def at_server(
        self,
        aggregate: Tensor,
        generator: torch.Generator,
        calibrated: CalibratedRound | None = None,
    ) -> Tensor:
        """Add the round's noise, in place; the buffers stay with the keys until the next round."""
        if calibrated is None:
            raise ValueError("mode ftrl needs the round's sensitivity, got none")
        keys = calibrated.keys
        if not isinstance(keys, DerivedKeys):
            raise ValueError("mode ftrl needs keys that repeat: those of the run's noise")
        terms = self._terms(aggregate.numel(), calibrated)
        if keys.buffers is None or keys.buffers.terms != terms:
            keys.buffers = NoiseBuffers(terms)
        keys.buffers.add_to(
            aggregate, calibrated.round_number, lambda number: keys.draw(f"blt round {number}")
        )
        return aggregate

    def _terms(self, element_count: int, calibrated: CalibratedRound) -> BufferTerms:
        if self.settings.buffers is None:
            raise ValueError("noise through buffers needs their decays and scales, got none")
        decays, scales = self.settings.buffers
        calibration = calibrate(
            noise_multiplier=self.settings.noise_multiplier,
            sensitivity=calibrated.sensitivity * (1 + _FEEDBACK_SHARE),
            element_count=element_count,
        )
        return BufferTerms(decays, scales, calibration, element_count)
