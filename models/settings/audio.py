"""Settings of the audio that voices are trained on, carried by a plan. No torch."""

import math

import msgspec

from models.settings.bounds import check_at_least, check_not_negative, check_positive


class MelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How sound becomes a log-mel spectrogram; the defaults are MelGAN's and HiFi-GAN's.

    Attributes:
        sample_rate_hz: Samples a second.
        fft_size: Samples of a transform, even; bins are ``fft_size // 2 + 1``.
        window_size: Samples of the Hann window, at most ``fft_size``.
        hop_size: Samples between two frames, at most half a window.
        mel_count: Mel channels.
        lowest_hz: Where the lowest channel begins.
        highest_hz: Where the highest channel ends, at most half the sampling rate.
        floor: Smallest channel amplitude; below it the logarithm says nothing.
    """

    sample_rate_hz: int = 22_050
    fft_size: int = 1024
    window_size: int = 1024
    hop_size: int = 256
    mel_count: int = 80
    lowest_hz: float = 0.0
    highest_hz: float = 8000.0
    floor: float = 1e-5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "sample_rate_hz", "fft_size", "window_size", "hop_size")
        check_at_least(self, 1, "mel_count")
        if self.fft_size % 2:
            raise ValueError(f"fft_size must be even, got {self.fft_size}")
        if self.window_size > self.fft_size:
            raise ValueError(
                f"window_size must be <= fft_size {self.fft_size}, got {self.window_size}"
            )
        if 2 * self.hop_size > self.window_size:
            raise ValueError(
                f"hop_size must be <= {self.window_size // 2}, half of window_size, got "
                f"{self.hop_size}: sound between the frames would be lost"
            )
        if not 0 <= self.lowest_hz < self.highest_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                f"lowest_hz and highest_hz must rise from 0 to at most "
                f"{self.sample_rate_hz / 2:g}, half the sampling rate, got {self.lowest_hz:g} and "
                f"{self.highest_hz:g}"
            )
        check_positive(self, "floor")

    @property
    def bin_count(self) -> int:
        """Return the frequencies of a transform."""
        return self.fft_size // 2 + 1


class ClipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which clips are used, and how they are made alike.

    Attributes:
        shortest_s: Shortest clip, in seconds of sound without the silence around it.
        longest_s: Longest clip, in seconds as it lies on disk.
        silence_db: How far below the loudest frame a frame at either end counts as silence.
        margin_s: Silence that is left at either end, in seconds.
        loudness_db: Level that speech is brought to, RMS relative to full scale.
    """

    shortest_s: float = 0.12
    longest_s: float = 20.0
    silence_db: float = 40.0
    margin_s: float = 0.025
    loudness_db: float = -23.0

    def __post_init__(self) -> None:
        if not 0 < self.shortest_s < self.longest_s < math.inf:
            raise ValueError(
                f"shortest_s must be > 0 and < longest_s, got {self.shortest_s} and "
                f"{self.longest_s}"
            )
        check_positive(self, "silence_db")
        check_not_negative(self, "margin_s")
        if not -math.inf < self.loudness_db < 0:
            raise ValueError(f"loudness_db must be < 0 and finite, got {self.loudness_db}")
