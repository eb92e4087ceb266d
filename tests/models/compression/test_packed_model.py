"""A packed model: what rounding costs, and files that are cut, changed or hostile."""

import hashlib
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from models.compression.packed_model import (
    LARGEST_PACKED_BYTES,
    PackedDescription,
    PackedModelError,
    PublicText,
    pack,
    packed_digest,
    read_packed,
    rounded,
    unpack,
)
from models.plan.plan import VocabularySettings
from models.settings.model import GruLmSettings, schema_of
from models.vector.codec import CodecError, FlatVector

MODEL = GruLmSettings(vocabulary_size=4, hidden_size=2)
SCHEMA = schema_of(MODEL)
HEADER_BYTES = 48

vectors = arrays.arrays(
    np.float32,
    SCHEMA.element_count,
    elements=st.floats(-(2.0**99), 2.0**99, width=32) | st.floats(-1, 1, width=32),
)


def described(parameters: FlatVector, **changes: Any) -> PackedDescription:
    description = PackedDescription(
        model=MODEL,
        vocabulary=VocabularySettings(name="four", size=4, sha256="0" * 64),
        language="en",
        texts=(PublicText(name="folder", times=1, token_count=9, unknown_words=0.25),),
        epochs=1,
        seed=1,
        figures={"perplexity": 3.5},
        parameters_sha256=packed_digest(rounded(SCHEMA, parameters)),
    )
    return msgspec.structs.replace(description, **changes)


def drawn() -> FlatVector:
    return np.random.default_rng(1).standard_normal(SCHEMA.element_count).astype(np.float32)


def file_of(told: bytes, tensors: bytes) -> bytes:
    """Return a file whose header fits it, written by hand from the layout in the docstring."""
    body = told + tensors
    digest = hashlib.sha256(body).digest()
    return struct.pack("<8sII32s", b"SOTTOPKD", 1, len(told), digest) + body


@given(vectors)
def test_a_value_is_off_by_half_a_scale_and_a_bias_by_nothing(parameters: FlatVector) -> None:
    found = unpack(pack(described(parameters), parameters)).parameters

    for spec in SCHEMA.tensors:
        there, back = (
            flat[SCHEMA.slices[spec.name]].reshape(spec.shape).astype(np.float64)
            for flat in (parameters, found)
        )
        if len(spec.shape) == 1:
            assert np.array_equal(there, back)
            continue
        scale = np.abs(there).max(axis=1, keepdims=True) / 127
        # A float32 scale is off by 2^-24 of itself, or by the least float32; 127 times that, and
        # the product's own rounding.
        slack = 2**-24 * 256 * scale + 128 * 2.0**-149
        assert np.all(np.abs(there - back) <= scale / 2 + slack)


@given(vectors)
def test_the_same_model_has_the_same_bytes_and_comes_back_with_its_description(
    parameters: FlatVector,
) -> None:
    packed = pack(described(parameters), parameters)

    assert packed == pack(described(parameters), parameters.copy())
    assert unpack(packed).description == described(parameters)
    assert np.array_equal(unpack(packed).parameters, rounded(SCHEMA, parameters))


def test_a_row_is_rounded_as_by_hand() -> None:
    parameters = np.zeros(SCHEMA.element_count, np.float32)
    # A scale of 2: 254 is 127 of them, 5 is 2.5 and goes to the even 2.
    parameters[:2] = [254, 5]

    assert rounded(SCHEMA, parameters)[:2].tolist() == [254, 4]
    assert not rounded(SCHEMA, parameters)[2:].any()


def test_an_english_start_of_the_keyboards_width_has_less_than_four_megabytes() -> None:
    schema = schema_of(GruLmSettings(vocabulary_size=10_000, hidden_size=300))

    # A byte a weight, four a row and four a bias.
    matrices = 10_000 * 300 + 2 * 900 * 300
    others = 4 * (10_000 + 2 * 900) + 4 * (10_000 + 2 * 900)
    assert schema.element_count == matrices + 10_000 + 2 * 900
    assert matrices + others < 4_000_000 < LARGEST_PACKED_BYTES


@given(st.data())
def test_a_file_that_was_cut_or_changed_is_refused(data: st.DataObject) -> None:
    packed = pack(described(drawn()), drawn())
    cut = data.draw(st.integers(0, len(packed) - 1))
    place = data.draw(st.integers(0, len(packed) - 1))
    flipped = bytearray(packed)
    flipped[place] ^= data.draw(st.integers(1, 255))

    for damaged in (packed[:cut], bytes(flipped), packed + b"\0"):
        with pytest.raises(PackedModelError):
            unpack(damaged)


@given(st.binary(max_size=300))
def test_bytes_of_anything_are_refused(noise: bytes) -> None:
    for hostile in (noise, file_of(noise, b""), file_of(b"", noise)):
        with pytest.raises(PackedModelError):
            unpack(hostile)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": {"vocabulary_size": 1 << 40}}, "vocabulary_size must be <= 1048576"),
        ({"model": {"hidden_size": 1 << 16, "vocabulary_size": 1 << 20}}, "at most 268435456"),
        ({"model": {"hidden_size": 3}}, "its tensors must have .* bytes, got"),
        ({"model": {"hidden_size": 0}}, "hidden_size"),
        ({"extra": 1}, "extra"),
        ({"parameters_sha256": "1" * 64}, "the digest in its description"),
        ({"parameters_sha256": "no"}, "64 lower-case hex digits"),
    ],
)
def test_a_description_that_says_something_else_is_refused(
    changes: dict[str, Any], told: str
) -> None:
    packed = pack(described(drawn()), drawn())
    length = struct.unpack_from("<I", packed, 12)[0]
    told_there, tensors = packed[HEADER_BYTES:][:length], packed[HEADER_BYTES + length :]
    fields = msgspec.json.decode(told_there)
    for name, value in changes.items():
        fields[name] = {**fields[name], **value} if isinstance(value, dict) else value

    with pytest.raises(PackedModelError, match=told):
        unpack(file_of(msgspec.json.encode(fields), tensors))


def test_tensors_that_are_not_finite_are_refused_by_name() -> None:
    packed = pack(described(drawn()), drawn())
    length = struct.unpack_from("<I", packed, 12)[0]
    told, tensors = packed[HEADER_BYTES:][:length], packed[HEADER_BYTES + length :]
    hostile = struct.pack("<f", float("inf")) + tensors[4:]

    with pytest.raises(PackedModelError, match=r"NaN or infinity in embedding\.weight"):
        unpack(file_of(told, hostile))
    with pytest.raises(CodecError, match="finite"):
        pack(described(drawn()), np.full(SCHEMA.element_count, np.nan, np.float32))


def test_another_version_and_another_digest_are_told(tmp_path: Path) -> None:
    packed = bytearray(pack(described(drawn()), drawn()))
    packed[8] = 2
    path = tmp_path / "later.sotto"
    path.write_bytes(packed)

    with pytest.raises(PackedModelError, match=r"later\.sotto.*version .* must be 1, got 2"):
        read_packed(path)
    with pytest.raises(PackedModelError, match="digest of the rounded"):
        pack(described(drawn(), parameters_sha256="1" * 64), drawn())


def test_a_file_is_read_no_further_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "large.sotto"
    with path.open("wb") as file:
        file.truncate(LARGEST_PACKED_BYTES + 1)

    with pytest.raises(PackedModelError, match=f"at most {LARGEST_PACKED_BYTES} bytes"):
        read_packed(path)
    with pytest.raises(PackedModelError, match="cannot be read"):
        read_packed(tmp_path / "none.sotto")
