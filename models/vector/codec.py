"""Write parameters as one checked block of bytes, and read them back without trusting it.

A payload is a 48-byte header and then the flat vector in schema order, raw little-endian float32::

    magic "SOTTOPAR" | version, uint32 | zero, uint32 | schema SHA-256, 32 bytes | elements

Names, order, shapes and size all follow from the schema. A payload without that schema's digest and
exact size is refused before its elements are looked at. The header is a multiple of 16 bytes, so
the vector is read in place. numpy only: no torch, no pickle.
"""

import struct
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.vector.schema import Schema
from privacy.foundation.memory_pool import fresh_memory

Payload: TypeAlias = bytes | bytearray | memoryview
FlatVector: TypeAlias = NDArray[np.float32]

CODEC_VERSION = 1
OTHER_MODEL = "the payload belongs to another model"
# Finiteness is checked block by block: a mask over a whole model would be a quarter of its size.
_BLOCK_ELEMENTS = 1 << 18


class CodecError(ValueError):
    """Raised when parameters do not fit their schema; the text names the rule."""


@dataclass(frozen=True)
class PayloadHeader:
    """The start of a kind of payload: magic, version, a form and a SHA-256, 48 bytes in all.

    Attributes:
        what: The payload's name in errors.
        magic: Eight bytes.
        version: Version of the layout behind the header.
    """

    what: str
    magic: bytes
    version: int

    _LAYOUT: ClassVar = struct.Struct("<8sII32s")
    SIZE: ClassVar = _LAYOUT.size

    def encode(self, sha256: bytes, form: int = 0) -> bytes:
        """Return the header of a payload of a form, with the digest of what it belongs to."""
        return self._LAYOUT.pack(self.magic, self.version, form, sha256)

    def decode(self, payload: memoryview) -> tuple[bytes, int]:
        """Return digest and form of a payload of 48 bytes or more; refuse another version."""
        magic, version, form, sha256 = self._LAYOUT.unpack_from(payload)
        if magic != self.magic:
            raise CodecError(f"{self.what} must start with {self.magic!r}, got {magic!r}")
        if version != self.version:
            older = "this side" if version > self.version else "the sender"
            raise CodecError(
                f"version of {self.what} must be {self.version}, got {version}; {older} is "
                "older: update it"
            )
        return sha256, form

    def decode_plain(self, payload: memoryview) -> bytes:
        """Return the digest of a payload that has one form only."""
        sha256, form = self.decode(payload)
        if form:
            raise CodecError(f"reserved field must be 0, got {form}")
        return sha256


_HEADER = PayloadHeader("a payload", b"SOTTOPAR", CODEC_VERSION)


def payload_size(schema: Schema) -> int:
    """Return the exact size of a payload of this schema in bytes."""
    return _HEADER.SIZE + schema.payload_bytes


def encode(schema: Schema, flat: FlatVector, *, into: memoryview | None = None) -> memoryview:
    """Return the flat vector, float32, ``(elements,)``, as a payload of its schema.

    ``into`` is writable memory of ``payload_size(schema)`` bytes, for callers that write many.

    Raises:
        CodecError: If the vector has another dtype or shape, or holds NaN or infinity.
    """
    check_flat("parameters", schema, flat)
    check_finite(schema, flat)
    payload = fresh_memory(payload_size(schema)) if into is None else into
    if payload.nbytes != payload_size(schema):
        raise ValueError(f"into must have {payload_size(schema)} bytes, got {payload.nbytes}")
    payload[: _HEADER.SIZE] = _HEADER.encode(schema.sha256)
    np.frombuffer(payload, dtype="<f4", offset=_HEADER.SIZE)[:] = flat
    return payload.toreadonly()


def decode(schema: Schema, payload: Payload) -> FlatVector:
    """Return the payload's flat vector as a read-only view, shape ``(elements,)``.

    Nothing is copied: the view keeps the payload's memory alive, and changes with it.

    Raises:
        CodecError: If the size, magic, version or schema is another, or a value is not finite.
    """
    check_layout(schema, payload)
    flat = np.frombuffer(payload, dtype="<f4", offset=_HEADER.SIZE)
    flat.flags.writeable = False
    check_finite(schema, flat)
    return flat


def check_layout(schema: Schema, payload: Payload) -> None:
    """Check all that ``decode`` does but the elements, which some callers measure anyway."""
    view = memoryview(payload)
    if not view.c_contiguous or view.nbytes != payload_size(schema):
        raise CodecError(
            f"payload must be {payload_size(schema)} contiguous bytes, got {view.nbytes}"
        )
    check_digest("schema", schema.sha256, _HEADER.decode_plain(view), OTHER_MODEL)


def check_digest(what: str, expected: bytes, found: bytes, other: str) -> None:
    """Raise ``CodecError`` if a payload's digest is that of something else, as ``other`` says."""
    if found != expected:
        raise CodecError(f"{what} must be {expected.hex()[:16]}…, got {found.hex()[:16]}…; {other}")


def check_flat(what: str, schema: Schema, flat: FlatVector) -> None:
    """Raise ``CodecError`` unless a vector is float32 of shape ``(elements,)``."""
    if flat.dtype != np.float32 or flat.shape != (schema.element_count,):
        raise CodecError(
            f"{what} must be float32 of shape ({schema.element_count},), "
            f"got {flat.dtype} of shape {flat.shape}"
        )


def named_tensors(schema: Schema, flat: FlatVector) -> dict[str, NDArray[np.float32]]:
    """Return a view of each tensor in its own shape, by name and in schema order."""
    check_flat("parameters", schema, flat)
    return {
        tensor.name: flat[schema.slices[tensor.name]].reshape(tensor.shape)
        for tensor in schema.tensors
    }


def check_finite(schema: Schema, flat: FlatVector) -> None:
    """Raise ``CodecError`` if a value is NaN or infinite, naming the first such tensor."""
    for start in range(0, flat.size, _BLOCK_ELEMENTS):
        finite = np.isfinite(flat[start : start + _BLOCK_ELEMENTS])
        if not finite.all():
            name = _tensor_at(schema, start + int(finite.argmin()))
            raise CodecError(f"parameters must be finite, got NaN or infinity in {name}")


def _tensor_at(schema: Schema, element: int) -> str:
    return next(name for name, where in schema.slices.items() if element < where.stop)
