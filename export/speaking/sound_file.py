"""Encode sound for files and streams, with libsndfile.

Formats that libsndfile was built without are refused by name, never replaced by another.
"""

import io
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import soundfile
    import soxr

SoundFormat = Literal["wav", "flac", "mp3", "opus", "pcm"]
"""``pcm`` is whole numbers of 16 bits, little-endian, without any header."""

MEDIA_TYPES: dict[SoundFormat, str] = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "pcm": "audio/pcm",
}

_FORMATS: dict[SoundFormat, tuple[str, str]] = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
}
_ENDINGS: dict[str, SoundFormat] = {
    ".wav": "wav",
    ".flac": "flac",
    ".mp3": "mp3",
    ".ogg": "opus",
    ".opus": "opus",
}
_RATES_HZ: dict[SoundFormat, tuple[int, ...]] = {
    "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "opus": (8_000, 12_000, 16_000, 24_000, 48_000),
}
_LARGEST = 32_767
# About 80 kbit a second; libsndfile takes a mode together with a level only.
_MP3_LEVEL = 0.5
_UNKNOWN_LENGTH = b"\xff" * 4


class SoundFormatError(ValueError):
    """Raised when sound cannot be encoded so; the text says why."""


def format_of(file: Path) -> SoundFormat:
    """Return the format that a file's name asks for; SoundFormatError if it names none."""
    found = _ENDINGS.get(file.suffix.lower())
    if found is None:
        raise SoundFormatError(
            f"the file must end in {', '.join(_ENDINGS)}, got {file.name[-80:]!r}"
        )
    return found


def check_format(wanted: SoundFormat, sample_rate_hz: int) -> None:
    """Check that sound can be encoded so here.

    Raise SoundFormatError if soundfile is missing or was built without the format, or the format
    has no
    sampling rate as high, or another one and soxr is missing.
    """
    if wanted == "pcm":
        return
    container, codec = _FORMATS[wanted]
    if not _soundfile().check_format(container, codec):
        raise SoundFormatError(
            f"{wanted} cannot be encoded here: libsndfile was built without it; ask for wav, flac "
            "or pcm"
        )
    if encoded_rate_hz(wanted, sample_rate_hz) != sample_rate_hz:
        _soxr()


def encoded_rate_hz(wanted: SoundFormat, sample_rate_hz: int) -> int:
    """Return the sound's sampling rate, or the format's next; SoundFormatError if none."""
    rates_hz = _RATES_HZ.get(wanted, (sample_rate_hz,))
    found = next((rate_hz for rate_hz in rates_hz if rate_hz >= sample_rate_hz), None)
    if found is None:
        raise SoundFormatError(
            f"{wanted} takes sound of at most {rates_hz[-1]} Hz, this voice has {sample_rate_hz} "
            "Hz; ask for another format"
        )
    return found


class SoundEncoder:
    """An encoder of sound that comes, for a stream whose length nobody knows yet."""

    def __init__(self, sample_rate_hz: int, wanted: SoundFormat) -> None:
        """Begin; errors as of ``check_format``."""
        check_format(wanted, sample_rate_hz)
        self._sink = _Sink()
        self._file: soundfile.SoundFile | None = None
        self._resampler: soxr.ResampleStream | None = None
        if wanted == "wav":
            self._sink.write(_endless_wav_header(sample_rate_hz))
        if wanted in ("wav", "pcm"):
            return
        container, codec = _FORMATS[wanted]
        rate_hz = encoded_rate_hz(wanted, sample_rate_hz)
        if rate_hz != sample_rate_hz:
            self._resampler = _soxr().ResampleStream(sample_rate_hz, rate_hz, 1, dtype="float32")
        # Of an even MP3 a player can tell the length by the size; nobody else tells it.
        is_even = wanted == "mp3"
        self._file = _soundfile().SoundFile(
            self._sink,
            "w",
            rate_hz,
            1,
            codec,
            format=container,
            compression_level=_MP3_LEVEL if is_even else None,
            bitrate_mode="CONSTANT" if is_even else None,
        )

    def add(self, sound: NDArray[np.float32]) -> bytes:
        """Take sound, shape ``(samples,)``, and return what can be sent; it may be nothing yet."""
        if self._resampler is not None:
            sound = self._resampler.resample_chunk(sound)
        self._write(sound)
        return self._sink.taken()

    def end(self) -> bytes:
        """Return what is left to be sent."""
        if self._resampler is not None:
            self._write(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        if self._file is not None:
            # Goes back to write lengths into the header, which is sent already and does without.
            self._file.close()
        return self._sink.taken()

    def _write(self, sound: NDArray[np.float32]) -> None:
        whole = whole_numbers(sound)
        if self._file is None:
            self._sink.write(whole.tobytes())
        else:
            self._file.write(whole)
            self._file.flush()


class _Sink:
    """A file that keeps no byte once it was taken; what is written over one is dropped."""

    def __init__(self) -> None:
        self._taken_bytes = 0
        self._place = 0
        self._waiting = bytearray()

    def taken(self) -> bytes:
        """Return what was not taken yet."""
        found = bytes(self._waiting)
        self._taken_bytes += len(found)
        self._waiting.clear()
        return found

    def write(self, content: bytes) -> int:
        """Write at the present place."""
        first = self._place - self._taken_bytes
        kept = content[max(0, -first) :]
        first = max(0, first)
        self._waiting[first : first + len(kept)] = kept
        self._place += len(content)
        return len(content)

    def read(self, _: int = -1) -> bytes:
        """Return nothing: it is for writing."""
        return b""

    def tell(self) -> int:
        """Return the present place."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another place."""
        end = self._taken_bytes + len(self._waiting)
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: end}[whence]
        self._place = start + offset
        return self._place


def encode_sound(sound: NDArray[np.float32], sample_rate_hz: int, wanted: SoundFormat) -> bytes:
    """Return a whole file of sound in [-1, 1], shape ``(samples,)``; what is beyond is clipped.

    Errors as of ``check_format``.
    """
    check_format(wanted, sample_rate_hz)
    rate_hz = encoded_rate_hz(wanted, sample_rate_hz)
    if rate_hz != sample_rate_hz:
        sound = _soxr().resample(sound, sample_rate_hz, rate_hz)
    whole = whole_numbers(sound)
    if wanted == "pcm":
        return whole.tobytes()
    container, codec = _FORMATS[wanted]
    written = io.BytesIO()
    _soundfile().write(written, whole, rate_hz, format=container, subtype=codec)
    return written.getvalue()


def whole_numbers(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return sound as whole numbers of 16 bits, little-endian."""
    return np.round(np.clip(sound, -1, 1) * _LARGEST).astype("<i2")


def _endless_wav_header(sample_rate_hz: int) -> bytes:
    """Return the header of a 16-bit WAV that does not say its length, for players of streams.

    Reference: Microsoft, "Multimedia Programming Interface and Data Specifications 1.0", 1991:
    RIFF.
    """
    form = struct.pack("<HHIIHH", 1, 1, sample_rate_hz, 2 * sample_rate_hz, 2, 16)
    fmt = b"fmt " + struct.pack("<I", len(form)) + form
    return b"RIFF" + _UNKNOWN_LENGTH + b"WAVE" + fmt + b"data" + _UNKNOWN_LENGTH


def _soundfile() -> "soundfile":
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package is there and its library is not.
        raise SoundFormatError("soundfile is missing; install sotto[speak]") from None
    return soundfile


def _soxr() -> "soxr":
    try:
        import soxr
    except ImportError:
        raise SoundFormatError(
            "this format has other sampling rates than the voice, and soxr is missing; install "
            "sotto[speak]"
        ) from None
    return soxr
