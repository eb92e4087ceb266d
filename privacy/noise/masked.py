"""Mode ``masked``: what devices send is no update but a masked vector, noise and all.

Nothing is added at the places of ``NoiseMode``: the devices' shares of the noise are drawn where
the vector is laid on its grid.
"""

from dataclasses import dataclass

from privacy.noise.masked_settings import MaskedNoise
from privacy.noise.mode import Arrival, NoiseMode


@dataclass(frozen=True)
class MaskedShares(NoiseMode):
    """Shares of discrete Gaussian noise, one a device, under masks.

    The guarantee covers readers of releases, and the coordinator as long as the helper keeps the
    masks from it.
    """

    settings: MaskedNoise

    arrival = Arrival.MASKED
