"""Write pickles as Python 2 wrote the official CIFAR files: strings are bytes, protocol 2."""

import io
import pickle
import struct
from typing import Any, ClassVar


class _Python2Pickler(pickle._Pickler):
    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes) -> None:
        short = len(value) < 256
        head = b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        # The stubs leave out how a pickler writes.
        self.write(head + value)  # type: ignore[attr-defined]
        self.memoize(value)  # type: ignore[attr-defined]

    dispatch[bytes] = save_string


def python2_pickle(value: object) -> bytes:
    """Return the pickle of dictionaries, lists, bytes, numbers and arrays."""
    buffer = io.BytesIO()
    _Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
