"""Squeezed parts: their size, and what is refused before and after unpacking."""

import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from models.compression.entropy import (
    MissingZstdError,
    check_squeezed,
    largest_squeezed,
    require_zstd,
    squeeze,
    unsqueeze,
)
from models.vector.codec import CodecError

BEFORE = 48
ZEROS = memoryview(bytes(100_000))
NOISE = memoryview(np.random.default_rng(0).bytes(10_000))


def opened(part: bytes, byte_count: int) -> bytes:
    return bytes(unsqueeze(memoryview(part), byte_count, BEFORE))


def with_frame(frame: bytes, *, told: int | None = None, size: int | None = None) -> bytes:
    """Return a part around a frame, filled up to the size that ``squeeze`` would choose."""
    used = BEFORE + 8 + len(frame)
    exponent = used.bit_length() - 1
    step = 1 << max(0, exponent - exponent.bit_length())
    whole = (-(-used // step) * step if size is None else size) - BEFORE
    return (struct.pack("<Q", len(frame) if told is None else told) + frame).ljust(whole, b"\0")


@given(st.binary(max_size=300), st.integers(1, 50))
def test_what_was_squeezed_comes_back(pattern: bytes, count: int) -> None:
    coded = memoryview(pattern * count)

    part = squeeze(coded, BEFORE)

    assert opened(part, len(coded)) == coded
    assert len(part) <= largest_squeezed(len(coded)) == len(coded) + 8


def test_what_has_a_pattern_gets_short_and_noise_stays_as_it_is() -> None:
    assert len(squeeze(ZEROS, BEFORE)) < 100
    assert squeeze(NOISE, BEFORE) == bytes(8) + NOISE


def test_two_updates_of_nearly_the_same_content_have_the_same_size() -> None:
    draws = np.random.default_rng(1)
    values = (draws.integers(-3, 4, 1_000_000) for _ in range(5))

    sizes = {len(squeeze(memoryview(part.astype(np.int8).tobytes()), BEFORE)) for part in values}

    # 7 values are 2.81 bits each: about 351 kB, where sizes are steps of 8 KiB.
    assert len(sizes) <= 2
    assert all((size + BEFORE) % 8192 == 0 for size in sizes)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    endless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))

    with pytest.raises(CodecError, match="must unpack to 100000 bytes, it says 268435456"):
        opened(with_frame(bomb), 100_000)
    with pytest.raises(CodecError, match="must unpack to 100000 bytes, it says -1"):
        opened(with_frame(endless), 100_000)


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(ZEROS))
    assert frame[4] & 0xC0 == 0x80  # The size stands in 4 bytes from byte 5 on.
    for told in (99_999, 100_001):
        frame[5:9] = struct.pack("<I", told)
        with pytest.raises(CodecError, match="does not unpack"):
            opened(with_frame(bytes(frame)), told)


@pytest.mark.parametrize(
    "frame", [b"", b"no frame", zstandard.ZstdCompressor().compress(ZEROS)[:-1]]
)
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(CodecError):
        opened(with_frame(frame), len(ZEROS))


def test_what_follows_a_frame_is_refused() -> None:
    frame = zstandard.ZstdCompressor().compress(ZEROS)

    with pytest.raises(CodecError, match="does not unpack"):
        opened(with_frame(frame + b"\1"), len(ZEROS))
    with pytest.raises(CodecError, match="filled up with zeros"):
        part = bytearray(squeeze(memoryview(bytes(5000) + NOISE[:40]), BEFORE))
        part[-1] = 1
        opened(bytes(part), 5040)


@pytest.mark.parametrize(
    "part",
    [
        b"",
        bytes(7),
        bytes(8 + 100_001),
        with_frame(b"x" * 40, size=300),
        with_frame(b"x" * 40, told=1 << 40),
        with_frame(b"x" * 40, told=(1 << 64) - 1),
    ],
    ids=["empty", "short", "long", "padded", "runs-past-its-end", "largest"],
)
def test_a_part_of_another_size_is_refused_unread(part: bytes) -> None:
    with pytest.raises(CodecError, match=r"must have 8 to 100008 bytes|must be filled up as"):
        check_squeezed(memoryview(part), 100_000, BEFORE)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_unpack_to_what_was_agreed(part: bytes) -> None:
    try:
        found = opened(part, 64)
    except CodecError:
        return
    assert len(found) == 64


def test_a_device_without_zstd_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingZstdError, match=r"zstd is missing; install sotto\[zstd\]"):
        require_zstd()
