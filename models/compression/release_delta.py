"""Write a release as its difference from one that the reader holds, and read it back exactly.

A payload is a header of 48 bytes and then a squeezed part (`models.compression.entropy`)::

    magic "SOTTODLT" | version, uint32 | form, uint32 | schema SHA-256, 32 bytes | squeezed part

The part unpacks to one number of 32 bits a value, the lowest bytes of all of them first, then the
next ones. The numbers are differences, folded so that small ones of either sign are small:

* form 1, where all values are multiples of ``step``: how many steps a value moved;
* form 0, otherwise: how many float32 numbers lie between the two values.

Both are exact. A reader without a release starts from zeros. The caller must compare the result
with the digest that was announced, which also reveals a wrong start.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from models.compression.entropy import largest_squeezed, squeeze, unsqueeze
from models.compression.value_coder import PIECE_ELEMENTS
from models.vector.codec import (
    OTHER_MODEL,
    CodecError,
    FlatVector,
    Payload,
    PayloadHeader,
    check_digest,
    check_flat,
)
from models.vector.schema import BYTES_PER_ELEMENT, Schema

DELTA_VERSION = 1
_HEADER = PayloadHeader("a moved release", b"SOTTODLT", DELTA_VERSION)
_BY_BITS, _BY_STEPS = 0, 1
_LARGEST_MOVE = 2**31 - 1
# Beyond it a float64 holds no fraction of a step to find.
_LARGEST_COUNT = 2.0**52
_Numbers = NDArray[np.uint32]


def largest_delta(schema: Schema) -> int:
    """Return the size of the schema's largest payload in bytes."""
    return _HEADER.SIZE + largest_squeezed(schema.payload_bytes)


def delta_sha256(schema: Schema, base_sha256: bytes | None) -> bytes:
    """Return the digest that a sealed delta carries in place of the schema's.

    It binds the delta to its start, so that it is never applied to another release. ``base_sha256``
    is the digest of that release's flat parameters; None for a delta from zeros.
    """
    return hashlib.sha256(_HEADER.magic + schema.sha256 + (base_sha256 or bytes(32))).digest()


def encode_delta(
    schema: Schema, base: FlatVector | None, target: FlatVector, step: float | None
) -> bytes:
    """Return the payload that leads from one release to another.

    ``base`` is the reader's release, float32, ``(elements,)``, or None for zeros; ``target`` is
    finite and of the same shape. ``step`` is what values may be multiples of; None if they are not.
    """
    start = _checked(schema, base)
    check_flat("a release", schema, target)
    by_steps = None if step is None else _moved_steps(start, target, step)
    form = _BY_BITS if by_steps is None else _BY_STEPS
    numbers = _moved_bits(start, target) if by_steps is None else by_steps
    planes = numbers.astype("<u4", copy=False).view(np.uint8).reshape(-1, BYTES_PER_ELEMENT)
    header = _HEADER.encode(schema.sha256, form)
    return header + squeeze(memoryview(planes.T.tobytes()), _HEADER.SIZE)


def decode_delta(
    schema: Schema, base: FlatVector | None, payload: Payload, step: float | None
) -> FlatVector:
    """Return the release that a payload leads to, float32, shape ``(elements,)``.

    ``base`` and ``step`` are as for ``encode_delta``. The sender must be authenticated, and
    comparing the digest is left to the caller.

    Raises:
        CodecError: If ``encode_delta`` writes no such payload.
    """
    start = _checked(schema, base)
    view = memoryview(payload).cast("B")
    form = _checked_form(schema, view)
    if form == _BY_STEPS and step is None:
        raise CodecError("a release must move by bits where the plan names no downlink_step")
    part = unsqueeze(view[_HEADER.SIZE :], schema.payload_bytes, _HEADER.SIZE)
    planes = np.frombuffer(part, np.uint8).reshape(BYTES_PER_ELEMENT, -1)
    numbers = np.ascontiguousarray(planes.T).reshape(-1).view("<u4")
    if form == _BY_BITS or step is None:
        return _from_order(_in_order(start) + _unfolded(numbers))
    return _stepped(start, numbers, step)


def _checked_form(schema: Schema, view: memoryview) -> int:
    if not _HEADER.SIZE < view.nbytes <= largest_delta(schema):
        raise CodecError(
            f"payload must be {_HEADER.SIZE + 1} to {largest_delta(schema)} bytes, "
            f"got {view.nbytes}"
        )
    schema_sha256, form = _HEADER.decode(view)
    if form not in (_BY_BITS, _BY_STEPS):
        raise CodecError(f"form of a moved release must be 0 or 1, got {form}")
    check_digest("schema", schema.sha256, schema_sha256, OTHER_MODEL)
    return int(form)


def _checked(schema: Schema, base: FlatVector | None) -> FlatVector:
    if base is None:
        return np.zeros(schema.element_count, np.float32)
    check_flat("a release", schema, base)
    return base


def _moved_steps(start: FlatVector, target: FlatVector, step: float) -> _Numbers | None:
    """Return by how many steps each value moved; None if a value is no multiple of the step."""
    moved = np.empty(len(target), np.uint32)
    for first in range(0, len(target), PIECE_ELEMENTS):
        piece = slice(first, first + PIECE_ELEMENTS)
        before, after = (values[piece].astype(np.float64) / step for values in (start, target))
        for counts in (before, after):
            if (np.abs(counts) > _LARGEST_COUNT).any() or (counts != np.rint(counts)).any():
                return None
        if (np.signbit(after) & (after == 0)).any():  # A count knows no zero below zero.
            return None
        difference = (after - before).astype(np.int64)
        if np.abs(difference).max(initial=0) > _LARGEST_MOVE:
            return None
        moved[piece] = _folded(difference.astype(np.int32))
    return moved


def _stepped(start: FlatVector, numbers: _Numbers, step: float) -> FlatVector:
    target = np.empty(len(start), np.float32)
    for first in range(0, len(start), PIECE_ELEMENTS):
        piece = slice(first, first + PIECE_ELEMENTS)
        moved = _unfolded(numbers[piece]).view(np.int32)
        target[piece] = (start[piece].astype(np.float64) / step + moved) * step
    return target


def _moved_bits(start: FlatVector, target: FlatVector) -> _Numbers:
    """Return how many float32 numbers lie between each pair of values, modulo 2^32."""
    return _folded((_in_order(target) - _in_order(start)).view(np.int32))


def _in_order(values: FlatVector) -> _Numbers:
    """Return numbers in the order of the values: their bits, with negative ones inverted."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    sign = np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign)


def _from_order(numbers: _Numbers) -> FlatVector:
    sign = np.uint32(1 << 31)
    return np.where(numbers & sign, numbers ^ sign, ~numbers).view(np.float32)


def _folded(difference: NDArray[np.int32]) -> _Numbers:
    """Return 0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    return ((difference << 1) ^ (difference >> 31)).view(np.uint32)


def _unfolded(numbers: _Numbers) -> _Numbers:
    """Undo ``_folded``, modulo 2^32."""
    return (numbers >> np.uint32(1)) ^ (np.uint32(0) - (numbers & np.uint32(1)))
