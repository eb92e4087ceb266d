"""Write named tensors as one safetensors file, and read one back without trusting it.

A file is an 8-byte size, a JSON header and the tensors' elements::

    size of the header, uint64 | {"name": {"dtype", "shape", "data_offsets"}, ...} | elements

All integers and elements are little-endian. Any safetensors reader reads these files. This module
reads less than the format allows: float32 and int64, in the order of the header and without gaps,
every float finite, no name twice and no byte left over. The header is checked against the size of
the file before an element is looked at. numpy only: no torch, no pickle.

References:
    safetensors, https://huggingface.co/docs/safetensors (the format).
"""

import math
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from privacy.foundation.strict_json import decode_json

NamedArrays: TypeAlias = dict[str, NDArray[np.float32] | NDArray[np.int64]]

_SIZE = struct.Struct("<Q")
_METADATA = "__metadata__"
_DTYPES = {"F32": "<f4", "I64": "<i8"}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
# A name and a shape take some hundred bytes: more is no header of ours.
_LARGEST_HEADER_BYTES = 16 << 20
_ALIGNED_BYTES = 8
# Counted before they are multiplied: a header has room for a product of a million digits.
_MOST_AXES = 16


class TensorFileError(ValueError):
    """Raised when bytes are no such file, or tensors cannot be one; the text names the rule."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def encode_tensors(
    # Any: an array of either dtype, checked below.
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> bytearray:
    """Return tensors and texts as one file, equal bytes for equal tensors in the same order.

    Tensors are float32 or int64 of any shape, empty ones included.

    Raises:
        TensorFileError: If a dtype is another, or a float is NaN or infinite.
    """
    header: dict[str, object] = {} if metadata is None else {_METADATA: dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
        start, end = end, end + tensor.nbytes
        header[name] = _Entry(
            dtype=_NAMES[tensor.dtype], shape=tensor.shape, data_offsets=(start, end)
        )
    described = msgspec.json.encode(header)
    described += b" " * (-len(described) % _ALIGNED_BYTES)
    file = bytearray(_SIZE.size + len(described) + end)
    _SIZE.pack_into(file, 0, len(described))
    file[_SIZE.size : _SIZE.size + len(described)] = described
    at = _SIZE.size + len(described)
    for tensor in tensors.values():
        into = np.frombuffer(file, dtype=tensor.dtype, count=tensor.size, offset=at)
        into[:] = tensor.reshape(-1)
        at += tensor.nbytes
    return file


def decode_tensors(file: bytes | bytearray | memoryview) -> tuple[NamedArrays, dict[str, str]]:
    """Return a file's tensors, as read-only views of it and in its order, and its metadata.

    Raises:
        TensorFileError: If the bytes are no such file, or a float is NaN or infinite.
    """
    view = memoryview(file).cast("B")
    entries, metadata, at = _header(view)
    tensors: NamedArrays = {}
    end = 0
    for name, entry in entries.items():
        start, end = (
            end,
            end + _element_count(name, entry) * np.dtype(_DTYPES[entry.dtype]).itemsize,
        )
        if entry.data_offsets != (start, end) or at + end > len(view):
            raise TensorFileError(
                f"{name} must lie at {start} to {end} of {len(view) - at} bytes, "
                f"got {entry.data_offsets}"
            )
        flat = np.frombuffer(view[at + start : at + end], dtype=_DTYPES[entry.dtype])
        flat.flags.writeable = False
        tensors[name] = flat.reshape(entry.shape)
        _check_tensor(name, tensors[name])
    if at + end != len(view):
        raise TensorFileError(f"the file must have {at + end} bytes, got {len(view)}")
    return tensors, metadata


def _header(view: memoryview) -> tuple[dict[str, _Entry], dict[str, str], int]:
    """Return the header's entries and metadata, and where the elements begin."""
    if len(view) < _SIZE.size:
        raise TensorFileError(f"the file must have a header, got {len(view)} bytes")
    (size,) = _SIZE.unpack_from(view)
    at = _SIZE.size + size
    if size > _LARGEST_HEADER_BYTES or at > len(view):
        raise TensorFileError(f"the header cannot have {size} of the file's {len(view)} bytes")
    try:
        described = decode_json(bytes(view[_SIZE.size : at]), dict[str, dict[str, object]])
        metadata = msgspec.convert(described.pop(_METADATA, {}), dict[str, str], strict=True)
        return msgspec.convert(described, dict[str, _Entry], strict=True), metadata, at
    except msgspec.DecodeError as error:
        raise TensorFileError(f"the header cannot be read: {error}") from None


def _element_count(name: str, entry: _Entry) -> int:
    if len(entry.shape) > _MOST_AXES:
        raise TensorFileError(f"{name} must have at most {_MOST_AXES} axes, got {len(entry.shape)}")
    if entry.dtype not in _DTYPES or any(extent < 0 for extent in entry.shape):
        raise TensorFileError(
            f"{name} must be {' or '.join(_DTYPES)} with extents >= 0, "
            f"got {entry.dtype} of shape {entry.shape}"
        )
    return math.prod(entry.shape)


def _check_tensor(name: str, tensor: NDArray[Any]) -> None:
    if tensor.dtype not in _NAMES:
        raise TensorFileError(f"{name} must be float32 or int64, got {tensor.dtype}")
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        raise TensorFileError(f"{name} must be finite, got NaN or infinity")
