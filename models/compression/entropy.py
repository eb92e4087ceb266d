"""Compress what a coder wrote with zstd, within a memory bound that is known beforehand.

A squeezed part is the number of bytes of a zstd frame, as uint64, the frame, and zeros up to a size
that many updates share. Where no frame would be shorter, the number is 0 and the bytes follow as
they are, so a part is at most 8 bytes longer than its input.

With entropy coding the size follows the content, so a person who typed less sends less. Rounding
sizes up as Padmé does leaks O(log log) bits of them, for at most 12 % of the bytes of a small
update and 3 % of one of megabytes. The frame's announced size is checked before and after
unpacking, which rules out decompression bombs. Every part that ``squeeze`` cannot have written is a
``CodecError``.

References:
    [PURBs] Nikitin et al., PoPETs 2019(4), section 4: Padmé.
    [RFC 8878] Collet and Kucherawy, "Zstandard Compression and the application/zstd Media Type".
"""

import importlib.util
import struct

from models.vector.codec import CodecError

_LENGTH = struct.Struct("<Q")
# What is squeezed are numbers that follow no pattern: higher levels look for one in vain.
_LEVEL = 1


class MissingZstdError(ValueError):
    """Raised when a plan asks for zstd and it is not installed."""


def require_zstd() -> None:
    """Raise ``MissingZstdError`` if zstd is not installed."""
    if importlib.util.find_spec("zstandard") is None:
        raise MissingZstdError("zstd is missing; install sotto[zstd]")


def largest_squeezed(byte_count: int) -> int:
    """Return the largest size of a squeezed part in bytes."""
    return _LENGTH.size + byte_count


def squeeze(coded: memoryview, before: int) -> bytes:
    """Return a part, squeezed and padded; ``before`` is the bytes of the payload in front of it."""
    import zstandard

    frame = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress(coded)
    length, body = (len(frame), frame) if len(frame) < len(coded) else (0, bytes(coded))
    part = _LENGTH.pack(length) + body
    return part + bytes(_padded_size(before, len(part), len(coded)) - before - len(part))


def check_squeezed(part: memoryview, byte_count: int, before: int) -> None:
    """Check that a part has a possible size and unpacks to ``byte_count``, without unpacking."""
    if not _LENGTH.size <= part.nbytes <= largest_squeezed(byte_count):
        raise CodecError(
            f"a squeezed part must have {_LENGTH.size} to {largest_squeezed(byte_count)} bytes, "
            f"got {part.nbytes}"
        )
    used = _LENGTH.size + _body_bytes(part, byte_count)
    if used > part.nbytes or before + part.nbytes != _padded_size(before, used, byte_count):
        raise CodecError(
            f"a part of {used} bytes must be filled up as sizes are, got {part.nbytes}"
        )


def unsqueeze(part: memoryview, byte_count: int, before: int) -> memoryview:
    """Return what was squeezed, ``byte_count`` bytes; ``before`` as given to ``squeeze``."""
    check_squeezed(part, byte_count, before)
    used = _LENGTH.size + _body_bytes(part, byte_count)
    if any(part[used:]):
        raise CodecError("a part must be filled up with zeros")
    body = part[_LENGTH.size : used]
    if _LENGTH.unpack_from(part)[0] == 0:
        return body
    return memoryview(_unpacked(body, byte_count))


def _unpacked(frame: memoryview, byte_count: int) -> bytes:
    import zstandard

    try:
        told = zstandard.frame_content_size(frame)
        if told != byte_count:
            raise CodecError(f"a frame must unpack to {byte_count} bytes, it says {told}")
        unpacked = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError:
        raise CodecError("a frame must be zstd's, it does not unpack") from None
    if len(unpacked) != byte_count:
        raise CodecError(f"a frame must unpack to {byte_count} bytes, got {len(unpacked)}")
    return unpacked


def _body_bytes(part: memoryview, byte_count: int) -> int:
    length: int = _LENGTH.unpack_from(part)[0]
    return length or byte_count


def _padded_size(before: int, used: int, byte_count: int) -> int:
    """Return the padded size of a whole payload."""
    return min(_padme(before + used), before + largest_squeezed(byte_count))


def _padme(size: int) -> int:
    """Return the least size >= ``size`` whose significant bits are as few as its exponent's."""
    exponent = size.bit_length() - 1
    free_bits = exponent - exponent.bit_length()
    mask = (1 << max(0, free_bits)) - 1
    return (size + mask) & ~mask
