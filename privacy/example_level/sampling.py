"""The draw of a person's examples for one step: a secret coin for each (Poisson).

Amplification by sampling holds only where nobody else knows the draw, so the coins come from a
key that the noise has too (``privacy.noise.secure_gaussian.NoiseKeys``), never from the plan's
seed, which the coordinator knows.

References:
    [DP-SGD] Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, arXiv:1607.00133.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_COIN_BITS = 64


def poisson_sample(count: int, sampling_rate: float, key: bytes) -> NDArray[np.int64]:
    """Return the numbers of the drawn examples, ascending; the same secret key draws the same.

    The chance of each is the largest multiple of 2^-64 that is not above the rate, in (0, 1].
    """
    if sampling_rate == 1:
        return np.arange(count)
    coins = np.frombuffer(hashlib.shake_256(key).digest(count * _COIN_BITS // 8), dtype="<u8")
    threshold = np.uint64(int(sampling_rate * 2.0**_COIN_BITS))
    return np.flatnonzero(coins < threshold)
