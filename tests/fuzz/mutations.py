"""Derandomised changes of an input: bits, bytes, numbers, pieces cut out, doubled or swapped in."""

import random
import struct
from collections.abc import Sequence

_MOST_CHANGES = 4
_PIECES = (
    b"\xff", b"\x00", b"\x80", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(8), b"-1", b"1e999",
    b"99999999999999999999", b"NaN", b"null", b"[", b"{", b"]", b"}", b'"', b"\n", b",", b"[[[[[[",
    b"\xed\xa0\x80", b"\xc3", b"\\u0000", b"\\ud800", b"../", b"0x", b"1_0", b"''", b"=",
)  # fmt: skip


def mutated(seeds: Sequence[bytes], which: int, draws: random.Random) -> bytes:
    """Return a seed with one to four changes."""
    content = bytearray(seeds[which])
    for _ in range(draws.randint(1, _MOST_CHANGES)):
        start = draws.randrange(len(content) + 1)
        end = min(len(content), start + draws.choice((1, 2, 4, 8, 64)))
        kind = draws.randrange(7)
        if kind == 0 and start < len(content):
            content[start] ^= 1 << draws.randrange(8)
        elif kind == 1:
            content[start:end] = draws.choice(_PIECES)
        elif kind == 2:
            content[start:start] = draws.choice(_PIECES)
        elif kind == 3:
            del content[start:end]
        elif kind == 4:
            content[start:start] = content[start:end] * draws.choice((1, 3, 30))
        elif kind == 5:
            number = draws.choice((0, 1, 255, 2**16, 2**31 - 1, 2**32 - 1))
            content[start : start + 4] = struct.pack(draws.choice("<>") + "I", number)
        else:
            other = draws.choice(seeds)
            place = draws.randrange(len(other) + 1)
            content[start:] = other[place:]
    return bytes(content)
