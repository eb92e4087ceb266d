"""Encode sound for files and streams, with libsndfile.

Formats that libsndfile was built without are refused by name, never replaced by another.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import soundfile

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
_OPUS_RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
_LARGEST = 32_767


class SoundFormatError(ValueError):
    """Raised when sound cannot be encoded so; the text says why."""


def format_of(file: Path) -> SoundFormat:
    """Return the format that a file's name asks for.

    Raises:
        SoundFormatError: If it names none.
    """
    found = _ENDINGS.get(file.suffix.lower())
    if found is None:
        raise SoundFormatError(
            f"the file must end in {', '.join(_ENDINGS)}, got {file.name[-80:]!r}"
        )
    return found


def check_format(wanted: SoundFormat, sample_rate_hz: int) -> None:
    """Check that sound can be encoded so here.

    Raises:
        SoundFormatError: If soundfile is missing, was built without the format, or the format
            cannot have this sampling rate.
    """
    if wanted == "pcm":
        return
    container, codec = _FORMATS[wanted]
    if not _soundfile().check_format(container, codec):
        raise SoundFormatError(
            f"{wanted} cannot be encoded here: libsndfile was built without it; ask for wav, flac "
            "or pcm"
        )
    if wanted == "opus" and sample_rate_hz not in _OPUS_RATES_HZ:
        raise SoundFormatError(
            f"opus takes sound of {', '.join(map(str, _OPUS_RATES_HZ))} Hz, this voice has "
            f"{sample_rate_hz} Hz; ask for another format"
        )


def encode_sound(sound: NDArray[np.float32], sample_rate_hz: int, wanted: SoundFormat) -> bytes:
    """Return a whole file.

    Args:
        sound: In [-1, 1], shape ``(samples,)``; what is beyond is clipped.
        sample_rate_hz: Samples a second.
        wanted: The format.

    Raises:
        SoundFormatError: As ``check_format``.
    """
    check_format(wanted, sample_rate_hz)
    whole = whole_numbers(sound)
    if wanted == "pcm":
        return whole.tobytes()
    container, codec = _FORMATS[wanted]
    written = io.BytesIO()
    _soundfile().write(written, whole, sample_rate_hz, format=container, subtype=codec)
    return written.getvalue()


def whole_numbers(sound: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return sound as whole numbers of 16 bits, little-endian."""
    return np.round(np.clip(sound, -1, 1) * _LARGEST).astype("<i2")


def _soundfile() -> "soundfile":
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package is there and its library is not.
        raise SoundFormatError("soundfile is missing; install sotto[speak]") from None
    return soundfile
