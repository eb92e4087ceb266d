"""Read recordings from WAV, FLAC and NIST SPHERE files, and refuse what is damaged.

libsndfile silently reads a WAV file that was cut short, so its header is compared with its size.
Messages name files and figures, never what is said in them.
"""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_client.datasets.text_set import DatasetError

SOUND_SUFFIXES = (".wav", ".flac")
_FORMATS = ("WAV", "WAVEX", "FLAC", "NIST")
_LOWEST_RATE_HZ = 8_000
_HIGHEST_RATE_HZ = 192_000
_SAMPLE_BYTES = 4
# FLAC halves speech, and silence it makes next to nothing of.
_ALWAYS_BYTES = 64 << 20
_LARGEST_RATIO = 32


@dataclass(frozen=True)
class Sound:
    """A recording: ``channels`` in [-1, 1], shape ``(samples, channels)``, and its sample rate."""

    channels: NDArray[np.float32]
    sample_rate_hz: int


class SoundSource(Protocol):
    """A recording, whose sound is read on demand."""

    @property
    def label(self) -> str:
        """Return its name in error messages."""

    def stated_s(self) -> float | None:
        """Return its length in seconds by its header, None where only reading tells.

        Raises:
            DatasetError: If it is missing, damaged, or of a kind that is not read.
        """

    def read(self) -> Sound:
        """Return all of it.

        Raises:
            DatasetError: As ``stated_s``.
        """


@dataclass(frozen=True)
class SoundFile:
    """One file, or one member of an archive with its bytes; errors call it by its ``path``."""

    path: Path
    content: bytes | None = None

    @property
    def label(self) -> str:
        """Return the path."""
        return str(self.path)

    def stated_s(self) -> float | None:
        """Return the length that the header states, in seconds; checks as `SoundSource`."""
        with self._open() as stream, self._sound(stream) as sound:
            return float(sound.frames) / float(sound.samplerate)

    def read(self) -> Sound:
        """Return all channels; checks as `SoundSource`."""
        damaged = _soundfile().LibsndfileError
        with self._open() as stream, self._sound(stream) as sound:
            try:
                channels = sound.read(dtype="float32", always_2d=True)
            except damaged as error:
                raise DatasetError(f"{self.label} is damaged: {error.error_string}") from None
            if len(channels) != sound.frames:
                raise DatasetError(
                    f"{self.label} is cut short: its header states {sound.frames} samples, "
                    f"{len(channels)} are there; copy it again"
                )
            return Sound(channels, int(sound.samplerate))

    def _open(self) -> BinaryIO:
        try:
            stream = self.path.open("rb") if self.content is None else io.BytesIO(self.content)
        except FileNotFoundError:
            raise DatasetError(f"{self.label} is missing") from None
        except OSError as error:
            raise DatasetError(f"{self.label} cannot be read: {error.strerror or error}") from None
        try:
            _check_complete(stream, self.label)
        except DatasetError:
            stream.close()
            raise
        return stream

    # Any: soundfile has no types.
    def _sound(self, stream: BinaryIO) -> Any:
        soundfile = _soundfile()
        try:
            sound = soundfile.SoundFile(stream)
        except soundfile.LibsndfileError as error:
            raise DatasetError(
                f"{self.label} must be a WAV or FLAC file, got something else or a damaged one: "
                f"{error.error_string}"
            ) from None
        try:
            self._check_header(sound)
            _check_length(sound, stream, self.label)
        except DatasetError:
            sound.close()
            raise
        return sound

    # Any: soundfile has no types.
    def _check_header(self, sound: Any) -> None:
        if sound.format not in _FORMATS:
            raise DatasetError(
                f"{self.label} must be a WAV or FLAC file, got {sound.format}; convert it first"
            )
        if not _LOWEST_RATE_HZ <= sound.samplerate <= _HIGHEST_RATE_HZ:
            raise DatasetError(
                f"{self.label} must have {_LOWEST_RATE_HZ} to {_HIGHEST_RATE_HZ} samples a "
                f"second, got {sound.samplerate}: speech needs at least 4 kHz; record it again"
            )
        if not sound.frames:
            raise DatasetError(f"{self.label} must have samples, got none; take it out")


# Any: soundfile has no types.
def _soundfile() -> Any:
    try:
        import soundfile
    except ModuleNotFoundError:
        raise DatasetError("soundfile is missing; install sotto[speech]") from None

    return soundfile


# Any: soundfile has no types.
def _check_length(sound: Any, stream: BinaryIO, label: str) -> None:
    """Check that a file does not state more sound than one of its size unpacks to."""
    place = stream.tell()
    largest = _ALWAYS_BYTES + _LARGEST_RATIO * stream.seek(0, io.SEEK_END)
    stream.seek(place)
    if sound.frames * sound.channels * _SAMPLE_BYTES > largest:
        raise DatasetError(
            f"{label} is damaged: its header states {sound.frames} samples in {sound.channels} "
            "channels, more than a file of its size can hold"
        )


def _check_complete(stream: BinaryIO, label: str) -> None:
    """Check that a file is not empty, and that a WAV file is as long as it says."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    if not size:
        raise DatasetError(f"{label} is empty")
    head = stream.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        _check_chunks(stream, size, label)
    stream.seek(0)


def _check_chunks(stream: BinaryIO, size: int, label: str) -> None:
    place = 12
    while place + 8 <= size:
        stream.seek(place)
        name, length = struct.unpack("<4sI", stream.read(8))
        # All ones: written to a pipe, where the length was not known.
        if name == b"data" and length != 2**32 - 1 and place + 8 + length > size:
            raise DatasetError(
                f"{label} is cut short: its header states {length} bytes of sound, "
                f"{size - place - 8} are there; copy it again"
            )
        place += 8 + length + length % 2
