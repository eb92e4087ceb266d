"""Make sound of a sentence's frames while they are made, the same as of all of them at the end.

Post-net and vocoder see so many frames to both sides and no more, so a stretch is final as soon as
those after it are there. The shorter the stretch, the more is computed twice, so the first one is
short and each that follows twice as long.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from export.speaking.voice_graphs import VocoderRunner
from models.settings.voice import KERNEL_SIZE, TransformerTtsSettings
from models.sound.griffin_lim import sound_of_mel

FIRST_S = 0.2
"""Sound of the first stretch, in seconds."""

LONGEST_S = 2.0
"""Sound of the longest one."""

Array = NDArray[np.float32]


class SoundStream:
    """The sound of one sentence, followed.

    ``log_mels``: spectrogram of all sound so far and of the next, shape ``(frames, mel)``.
    """

    def __init__(
        self,
        settings: TransformerTtsSettings,
        finish: Callable[[Array], Array],
        vocoder: VocoderRunner,
        *,
        speed: float,
    ) -> None:
        """Begin without a frame.

        Args:
            finish: The voice's post-net, batch axis and all.
            speed: How much faster than the voice learnt to speak.
        """
        mels = settings.mel.mel_count
        self._finish, self._vocoder, self._speed = finish, vocoder, speed
        self._seen_after = settings.postnet_layer_count * (KERNEL_SIZE // 2)
        self._hop = settings.mel.hop_size
        self._frames_per_s = settings.mel.sample_rate_hz / self._hop
        self._raw: list[Array] = []
        self._raw_count = 0
        self._final = np.zeros((0, mels), dtype=np.float32)
        self._sounded = 0
        self._wanted_s = FIRST_S
        self.log_mels = self._final

    def add(self, frames: Array) -> Array:
        """Take a step's normalised frames, ``(1, frames, mel)``; return the sound final by now.

        Its shape is ``(samples,)``, mostly none.
        """
        self._raw.append(frames)
        self._raw_count += frames.shape[1]
        looked_past = self._seen_after + self._speed * (self._vocoder.context_frames + 2)
        ready = (self._raw_count - looked_past) / self._speed - self._sounded
        if ready < self._wanted_s * self._frames_per_s:
            return np.zeros(0, dtype=np.float32)
        self._wanted_s = min(2 * self._wanted_s, LONGEST_S)
        return self._advance(is_end=False)

    def end(self) -> Array:
        """Return the sound that is left, after the last frame; shape ``(samples,)``."""
        return self._advance(is_end=True)

    def _advance(self, *, is_end: bool) -> Array:
        self._correct(is_end=is_end)
        count = retimed_count(len(self._final), self._speed, is_end=is_end)
        self.log_mels = retimed(self._final, self._speed, count)
        seen = self._vocoder.context_frames
        end = count - 1 if is_end else count - 1 - seen
        if end <= self._sounded:
            return self._only_frame() if is_end and not self._sounded else self.log_mels[:0, 0]
        first = max(0, self._sounded - seen)
        sound = self._vocoder.sound(self.log_mels[np.newaxis, first : end + seen + 1])[0]
        made: Array = sound[(self._sounded - first) * self._hop : (end - first) * self._hop]
        self._sounded = end
        return made

    def _correct(self, *, is_end: bool) -> None:
        """Let the post-net see what is new, and keep what no later frame changes."""
        done, seen = len(self._final), self._seen_after
        end = self._raw_count if is_end else self._raw_count - seen
        if end <= done:
            return
        raw = np.concatenate(self._raw, axis=1)
        first = max(0, done - seen)
        corrected = self._finish(raw[:, first:])[0, done - first : end - first]
        self._final = np.concatenate([self._final, corrected])

    def _only_frame(self) -> Array:
        """Return the sound of a single frame; a transform has none before its second one."""
        sound: Array = self._vocoder.sound(np.repeat(self.log_mels[np.newaxis], 2, axis=1))[0]
        return sound


class WholeSound:
    """The sound of a whole sentence at its end, by Griffin-Lim.

    ``log_mels``: spectrogram of the sound, shape ``(frames, mel)``; none before the end.
    """

    def __init__(
        self,
        settings: TransformerTtsSettings,
        finish: Callable[[Array], Array],
        draws: np.random.Generator,
        *,
        speed: float,
    ) -> None:
        """Begin without a frame; ``draws`` draws first phases, the rest as of ``SoundStream``."""
        self._settings, self._finish, self._draws, self._speed = settings, finish, draws, speed
        self._raw: list[Array] = []
        self.log_mels = np.zeros((0, settings.mel.mel_count), dtype=np.float32)

    def add(self, frames: Array) -> Array:
        """Take the normalised frames of a step, shape ``(1, frames, mel)``; there is no sound."""
        self._raw.append(frames)
        return self.log_mels[:0, 0]

    def end(self) -> Array:
        """Return all sound, after the last frame; shape ``(samples,)``."""
        corrected = self._finish(np.concatenate(self._raw, axis=1))[0]
        count = retimed_count(len(corrected), self._speed, is_end=True)
        self.log_mels = retimed(corrected, self._speed, count)
        heard = self.log_mels if count > 1 else np.repeat(self.log_mels, 2, axis=0)
        sound = sound_of_mel(heard, self._settings.mel, draws=self._draws)
        return sound.astype(np.float32)


def retimed_count(count: int, speed: float, *, is_end: bool) -> int:
    """Return how many frames there are at a speed, of ``count``.

    Frames that a later one would be mixed into are not counted before the end.
    """
    if is_end:
        return count if speed == 1 else max(1, round(count / speed))
    if speed == 1:
        return count
    return max(0, int((count - 2) / speed) + 1) if count >= 2 else 0


def retimed(log_mels: Array, speed: float, count: int) -> Array:
    """Return ``(count, mel)`` frames that take 1 / speed of the time, at the same pitch.

    Between two frames of ``log_mels``, shape ``(frames, mel)``, is a mixture of both, after the
    last
    that one.
    """
    if speed == 1:
        return log_mels[:count]
    last = len(log_mels) - 1
    places = np.minimum(np.arange(count) * speed, last)
    before = np.floor(places).astype(np.int64)
    share = (places - before)[:, np.newaxis].astype(np.float32)
    after = np.minimum(before + 1, last)
    mixed: Array = log_mels[before] * (1 - share) + log_mels[after] * share
    return mixed
