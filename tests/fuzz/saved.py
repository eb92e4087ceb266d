"""Small files of a format, as seeds."""

import gzip
import io
import struct
import tarfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def saved_arrays(**arrays: NDArray[Any]) -> bytes:
    """Return arrays as an ``.npz`` file."""
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def gzipped(content: bytes) -> bytes:
    """Return content as a gzip member, always of the same bytes."""
    return gzip.compress(content, mtime=0)


def tarred(files: Mapping[str, bytes]) -> bytes:
    """Return files as a tar archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def wav(samples: int = 200, *, rate: int = 16_000, channels: int = 1) -> bytes:
    """Return a WAV file of 16-bit silence."""
    data = bytes(2 * samples * channels)
    form = struct.pack("<HHIIHH", 1, channels, rate, 2 * rate * channels, 2 * channels, 16)
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def nist(samples: int = 200) -> bytes:
    """Return a NIST SPHERE file of 16-bit silence at 16 kHz."""
    head = (
        f"NIST_1A\n   1024\nsample_count -i {samples}\nsample_n_bytes -i 2\nchannel_count -i 1\n"
        "sample_byte_format -s2 01\nsample_rate -i 16000\nsample_coding -s3 pcm\nend_head\n"
    )
    return head.encode().ljust(1024, b" ") + bytes(2 * samples)
