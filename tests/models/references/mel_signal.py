"""The signal that both sides of the comparison with librosa measure; numpy alone."""

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 22_050
SAMPLES = 2_200


def reference_signal() -> NDArray[np.float64]:
    """Return a tenth of a second: a chirp, a tone, noise from a fixed recurrence, then silence.

    Shape ``(2200,)``. The last 700 samples are zero, so that the clamp is compared too.
    """
    seconds = np.arange(SAMPLES) / SAMPLE_RATE_HZ
    chirp = 0.4 * np.sin(2 * np.pi * (100 * seconds + 35_000 * seconds**2))
    tone = 0.2 * np.sin(2 * np.pi * 440 * seconds)
    # The linear congruence of Numerical Recipes: the same bits wherever it runs.
    state, noise = 1, np.empty(SAMPLES)
    for place in range(SAMPLES):
        state = (1_664_525 * state + 1_013_904_223) % 2**32
        noise[place] = state / 2**31 - 1
    signal = chirp + tone + 0.05 * noise
    signal[-700:] = 0.0
    return signal
