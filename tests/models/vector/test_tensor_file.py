import json
import struct

import numpy as np
import pytest

from models.vector.tensor_file import NamedArrays, TensorFileError, decode_tensors, encode_tensors

TENSORS: NamedArrays = {
    "head.weight": np.array([[1.0, -2.0]], dtype=np.float32),
    "steps": np.array([3], dtype=np.int64),
    "nobody": np.zeros((0, 4), dtype=np.float32),
}


def file_of(header: object, elements: bytes) -> bytes:
    """Lay a file out by hand."""
    described = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(described)) + described + elements


def entry(start: int, end: int, **changes: object) -> dict[str, object]:
    return {"dtype": "F32", "shape": [(end - start) // 4], "data_offsets": [start, end], **changes}


def test_what_is_written_is_read_in_the_same_order_and_shapes() -> None:
    tensors, metadata = decode_tensors(encode_tensors(TENSORS, {"round": "3"}))

    assert metadata == {"round": "3"}
    assert list(tensors) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        assert np.array_equal(tensors[name], tensor)


def test_the_layout_is_that_of_safetensors() -> None:
    # By hand: an 8-byte size, a header filled up with blanks to a multiple of 8, 2 float32.
    file = bytes(encode_tensors({"w": np.array([1.0, 0.5], dtype=np.float32)}))

    (size,) = struct.unpack_from("<Q", file)
    assert size % 8 == 0
    assert json.loads(file[8 : 8 + size]) == {
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    }
    assert file[8 + size :] == struct.pack("<2f", 1.0, 0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64])
def test_another_dtype_is_not_written(dtype: type) -> None:
    with pytest.raises(TensorFileError, match="w must be float32 or int64"):
        encode_tensors({"w": np.zeros(1, dtype=dtype)})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_neither_written_nor_read(value: float) -> None:
    with pytest.raises(TensorFileError, match="w must be finite"):
        encode_tensors({"w": np.array([value], dtype=np.float32)})
    with pytest.raises(TensorFileError, match="w must be finite"):
        decode_tensors(file_of({"w": entry(0, 4)}, struct.pack("<f", value)))


@pytest.mark.parametrize(
    ("file", "rule"),
    [
        (b"", "must have a header"),
        (struct.pack("<Q", 1 << 60), "cannot have 1152921504606846976"),
        (struct.pack("<Q", 9) + b"{}", "cannot have 9 of the file's 10"),
        (file_of(b"not json", b""), "cannot be read"),
        (file_of(b"[]", b""), "cannot be read"),
        (file_of({"w": entry(0, 4, more=1)}, bytes(4)), "cannot be read"),
        (file_of({"w": entry(0, 4)}, bytes(3)), "w must lie at 0 to 4 of 3 bytes"),
        (file_of({"w": entry(0, 4)}, bytes(5)), "the file must have"),
        (file_of({"w": entry(4, 8)}, bytes(8)), "w must lie at 0 to 4"),
        (file_of({"a": entry(0, 4), "b": entry(0, 4)}, bytes(8)), "b must lie at 4 to 8"),
        (file_of({"w": entry(0, 4, shape=[1 << 40])}, bytes(4)), "w must lie at"),
        (file_of({"w": entry(0, 4, shape=[-1, -1])}, bytes(4)), "extents >= 0"),
        (file_of({"w": entry(0, 4, dtype="F64")}, bytes(8)), "F32 or I64"),
        (
            file_of(
                b'{"w": {"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
                b'"w": {"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
                b"",
            ),
            "each name once",
        ),
    ],
)
def test_a_file_that_is_not_exactly_right_is_refused(file: bytes, rule: str) -> None:
    with pytest.raises(TensorFileError, match=rule):
        decode_tensors(file)
