import os
from pathlib import Path

import pytest

from privacy.sealing.spool import SealedSpool, SpoolError


def test_pieces_are_read_in_any_order(tmp_path: Path) -> None:
    spool = SealedSpool([3, 2], folder=tmp_path)
    for piece in (b"abc", b"de", b"fgh", b"ij"):
        spool.append(piece)

    assert spool.record_count == 2
    assert [spool.read(1, 1), spool.read(0, 0), spool.read(1, 0), spool.read(0, 1)] == [
        b"ij",
        b"abc",
        b"fgh",
        b"de",
    ]


def test_the_file_has_no_name_and_none_of_the_plaintext(tmp_path: Path) -> None:
    spool = SealedSpool([64], folder=tmp_path)
    spool.append(b"secret" * 10 + b"1234")

    assert list(tmp_path.iterdir()) == []
    written = os.pread(spool._file.fileno(), 1000, 0)
    assert len(written) == 80
    assert b"secret" not in written


def test_equal_pieces_are_sealed_differently(tmp_path: Path) -> None:
    spool = SealedSpool([8], folder=tmp_path)
    spool.append(bytes(8))
    spool.append(bytes(8))

    written = os.pread(spool._file.fileno(), 48, 0)
    assert written[:24] != written[24:]


def test_a_changed_byte_is_no_update(tmp_path: Path) -> None:
    spool = SealedSpool([8, 8], folder=tmp_path)
    for _ in range(2):
        spool.append(bytes(8))
    (byte,) = os.pread(spool._file.fileno(), 1, 30)
    os.pwrite(spool._file.fileno(), bytes([byte ^ 1]), 30)

    assert spool.read(0, 0) == bytes(8)
    with pytest.raises(SpoolError, match="look at the disk"):
        spool.read(0, 1)


def test_two_exchanged_pieces_are_no_updates(tmp_path: Path) -> None:
    spool = SealedSpool([8], folder=tmp_path)
    spool.append(b"first...")
    spool.append(b"second..")
    first, second = (os.pread(spool._file.fileno(), 24, start) for start in (0, 24))
    os.pwrite(spool._file.fileno(), second + first, 0)

    with pytest.raises(SpoolError):
        spool.read(0, 0)


def test_a_piece_of_another_size_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    spool = SealedSpool([4], folder=tmp_path)

    with pytest.raises(ValueError, match="must have 4 bytes, got 3"):
        spool.append(b"abc")
    with pytest.raises(IndexError, match="no piece 0 of record 0"):
        spool.read(0, 0)
