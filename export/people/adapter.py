"""Keep one person's tensors as an onnxruntime adapter, and read them back.

The file is onnxruntime's own (``.onnx_adapter``, AdapterFormat, a flatbuffer that its reader
verifies), so any of its languages can give it to a session. Tensors rest as float32, float16, or 8
bits with a scale for 64 of them (`export.graphs.eight_bits`); vectors such as biases stay float32.
"""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from export.bundles.manifest_entries import BundleError
from export.graphs.eight_bits import BLOCK, Rounded, rounded
from export.runtime.quiet_onnxruntime import load_onnxruntime
from export.runtime.word_graph import GraphError

Resting = Literal["float32", "float16", "int8"]
"""How a person's tensors rest in a file."""

_VERSION = 1
_SCALES = ".scales"
_SUFFIX = ".onnx_adapter"


def encode_adapter(tensors: Mapping[str, NDArray[np.float32]], resting: Resting) -> bytes:
    """Return an adapter with one person's finite tensors, by the names of the graph's inputs.

    Raise BundleError if a value is too large for float16, GraphError if onnxruntime is missing.
    """
    runtime = _onnxruntime()
    # Any: float32, float16 or int8.
    kept: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        kept |= _at_rest(name, tensor, resting)
    adapter = runtime.AdapterFormat()
    adapter.set_adapter_version(_VERSION)
    adapter.set_model_version(_VERSION)
    adapter.set_parameters(
        {
            name: runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
            for name, array in kept.items()
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"person{_SUFFIX}"
        adapter.export_adapter(str(path))
        return path.read_bytes()


def decode_adapter(
    encoded: bytes, shapes: Mapping[str, tuple[int, ...]], resting: Resting
) -> dict[str, NDArray[np.float32]]:
    """Return the tensors that an adapter holds, as a graph takes them.

    Args:
        shapes: Shape of every tensor there must be, by name.
        resting: How they are stored.

    Raises:
        BundleError: If the bytes are no adapter, or hold other tensors, or NaN or infinity.
        GraphError: If onnxruntime is missing.
    """
    kept = _parameters(encoded)
    tensors: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        tensors[name] = _as_taken(name, shape, kept, resting)
        if not np.isfinite(tensors[name]).all():
            raise BundleError(f"{name} must be finite, got NaN or infinity")
    if kept:
        raise BundleError(f"an adapter must hold a person's tensors only, got {sorted(kept)[:3]}")
    return tensors


def _at_rest(name: str, tensor: NDArray[np.float32], resting: Resting) -> dict[str, NDArray[Any]]:
    if resting == "float32" or tensor.ndim < 2:
        return {name: tensor}
    if resting == "int8":
        made = rounded(tensor.reshape(-1, tensor.shape[-1]))
        return {name: made.whole, name + _SCALES: made.scales}
    with np.errstate(over="ignore"):
        half = tensor.astype(np.float16)
    if not np.isfinite(half).all():
        raise BundleError(f"{name} must be below 65,504 for float16; take int8 or float32")
    return {name: half}


def _as_taken(
    name: str, shape: tuple[int, ...], kept: dict[str, NDArray[Any]], resting: Resting
) -> NDArray[np.float32]:
    """Take a tensor out of what is kept, as float32 in its own shape."""
    if resting == "int8" and len(shape) > 1:
        rows, blocks = math.prod(shape[:-1]), -(-shape[-1] // BLOCK)
        whole = _taken(name, (rows, blocks, BLOCK), np.int8, kept)
        scales = _taken(name + _SCALES, (rows, blocks), np.float32, kept)
        return Rounded(whole, scales, shape[-1]).matrix().reshape(shape)
    half = resting == "float16" and len(shape) > 1
    return _taken(name, shape, np.float16 if half else np.float32, kept).astype(np.float32)


def _taken(
    name: str, shape: tuple[int, ...], dtype: type[np.generic], kept: dict[str, NDArray[Any]]
) -> NDArray[Any]:
    array = kept.pop(name, None)
    if array is None:
        raise BundleError(f"the adapter must hold {name}, it does not: it is of another schema")
    if array.shape != shape or array.dtype != dtype:
        raise BundleError(
            f"{name} must be {np.dtype(dtype)} of shape {shape}, "
            f"got {array.dtype} of shape {array.shape}: the adapter is of another schema"
        )
    return array


def _parameters(encoded: bytes) -> dict[str, NDArray[Any]]:
    runtime = _onnxruntime()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"person{_SUFFIX}"
        path.write_bytes(encoded)
        try:
            held = runtime.AdapterFormat.read_adapter(str(path)).get_parameters()
        # The second: a name in it is no UTF-8.
        except (RuntimeError, UnicodeDecodeError):
            raise BundleError("the adapter cannot be read: it is damaged") from None
        # Copied: the file that they lie in goes.
        return {name: value.numpy().copy() for name, value in held.items()}


# Any: the module has no types.
def _onnxruntime() -> Any:
    try:
        return load_onnxruntime()
    except ImportError:
        raise GraphError("onnxruntime is missing; install sotto[export]") from None
