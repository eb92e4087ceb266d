"""Compare the melody of two voices: where they are voiced, and how high.

Pitch is measured by WORLD (extra ``pitch``): DIO finds candidates, StoneMask refines them.

References:
    [WORLD] Morise, Yokomori, Ozawa, "WORLD: A Vocoder-Based High-Quality Speech Synthesis System
        for Real-Time Applications", IEICE Transactions, 2016.
"""

import importlib
import math
from typing import Any

import msgspec
import torch
from torch import Tensor

from models.listening.time_warping import WarpingPath
from models.settings.audio import MelSettings
from models.sound.mel import SoundError, frame_count
from simulation.listening.intelligibility import MissingMeasureError

LOWEST_HZ = 60.0
HIGHEST_HZ = 500.0
_CENTS = 1200 / math.log(2)


class PitchErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over pairs of frames; those of several utterances add up.

    Attributes:
        voiced_in_both: Pairs of two voiced frames; ``voiced_in_one`` counts pairs of one.
        hertz_squares: Sum of squared differences of pitch over pairs voiced in both, in Hz².
        cents_squares: The same of 1200 log2 of the ratio, in cents².
    """

    pairs: int = 0
    voiced_in_both: int = 0
    voiced_in_one: int = 0
    hertz_squares: float = 0.0
    cents_squares: float = 0.0

    def __add__(self, other: "PitchErrors") -> "PitchErrors":
        return PitchErrors(
            pairs=self.pairs + other.pairs,
            voiced_in_both=self.voiced_in_both + other.voiced_in_both,
            voiced_in_one=self.voiced_in_one + other.voiced_in_one,
            hertz_squares=self.hertz_squares + other.hertz_squares,
            cents_squares=self.cents_squares + other.cents_squares,
        )

    @property
    def rmse_hz(self) -> float | None:
        """Return the root mean square difference in Hz; None if nothing is voiced in both."""
        return self._root(self.hertz_squares)

    @property
    def rmse_cents(self) -> float | None:
        """Return it in cents, a hundredth of a semitone; None if nothing is voiced in both."""
        return self._root(self.cents_squares)

    @property
    def voicing_error(self) -> float | None:
        """Return the share of pairs with one voiced frame; None if there is no pair."""
        return self.voiced_in_one / self.pairs if self.pairs else None

    def _root(self, squares: float) -> float | None:
        return math.sqrt(squares / self.voiced_in_both) if self.voiced_in_both else None


def pitch_track(samples: Tensor, settings: MelSettings) -> Tensor:
    """Return the pitch at each mel frame in Hz, from 60 to 500, or 0 if unvoiced.

    ``samples`` are mono, at the settings' rate, shape ``(samples,)``. The track is float64, shape
    ``(frames,)`` with the frames of `models.sound.mel.log_mel`.

    Raises:
        MissingMeasureError: If pyworld is missing.
        SoundError: If there is no sample, or one is not finite.
    """
    world = _world()
    if samples.ndim != 1 or not len(samples):
        raise SoundError(f"pitch needs mono sound, got shape {tuple(samples.shape)}")
    if not torch.isfinite(samples).all():
        raise SoundError("pitch needs finite samples, got some that are not")
    wave = samples.double().contiguous().numpy()
    rate = settings.sample_rate_hz
    found, times = world.dio(
        wave,
        rate,
        f0_floor=LOWEST_HZ,
        f0_ceil=HIGHEST_HZ,
        frame_period=1000 * settings.hop_size / rate,
    )
    track = torch.from_numpy(world.stonemask(wave, found, times, rate))
    frames = frame_count(len(samples), settings)
    # WORLD's last frame is there or not as its period rounds; it lies at the sound's end.
    return torch.nn.functional.pad(track, (0, max(0, frames - len(track))))[:frames]


def pitch_errors(reference: Tensor, spoken: Tensor, path: WarpingPath) -> PitchErrors:
    """Compare two pitch tracks, as of ``pitch_track``, along a path between their frames.

    Raises:
        ValueError: If the path leads beyond a track.
    """
    if int(path.first.max()) >= len(reference) or int(path.second.max()) >= len(spoken):
        raise ValueError(
            f"the path must stay within {len(reference)} and {len(spoken)} frames, got "
            f"{int(path.first.max()) + 1} and {int(path.second.max()) + 1}"
        )
    first, second = reference[path.first].double(), spoken[path.second].double()
    both = (first > 0) & (second > 0)
    hertz = second[both] - first[both]
    cents = _CENTS * (second[both] / first[both]).log()
    return PitchErrors(
        pairs=len(first),
        voiced_in_both=int(both.sum()),
        voiced_in_one=int(((first > 0) != (second > 0)).sum()),
        hertz_squares=float(hertz.square().sum()),
        cents_squares=float(cents.square().sum()),
    )


# Any: pyworld has no types.
def _world() -> Any:
    try:
        return importlib.import_module("pyworld")
    except ModuleNotFoundError as error:
        raise MissingMeasureError(
            f"F0 and voicing need pyworld: {error.name} is missing; install sotto[pitch], which "
            "needs a C++ compiler"
        ) from None
