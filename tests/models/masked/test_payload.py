import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.masked.layout import MASKED_HEADER, masked_layout
from models.masked.payload import check_payload, encode_payload, split_payload
from models.settings.weighing import AttentiveWeights
from models.vector.codec import CodecError
from privacy.masking.keystream import SEED_BYTES
from privacy.sealing.envelope import sealed_bytes
from tests.masked_scene import masked_noise, masked_plan

LAYOUT = masked_layout(masked_plan())
PACKED = bytes(range(256)) * (LAYOUT.packed_bytes // 256 + 1)
PACKED = PACKED[: LAYOUT.packed_bytes]
SEALED = os.urandom(sealed_bytes(SEED_BYTES))


def test_a_payload_is_split_into_what_it_was_made_of() -> None:
    payload = encode_payload(LAYOUT, PACKED, SEALED)

    assert len(payload) == LAYOUT.payload_bytes
    parts = split_payload(LAYOUT, payload)
    assert (bytes(parts.packed), bytes(parts.sealed_seed)) == (PACKED, SEALED)


@settings(max_examples=100, deadline=None)
@given(st.integers(-200, 200).filter(bool))
def test_no_other_length_is_a_payload(change: int) -> None:
    payload = bytes(encode_payload(LAYOUT, PACKED, SEALED))
    other = payload[:change] if change < 0 else payload + bytes(change)

    with pytest.raises(CodecError, match="contiguous bytes"):
        split_payload(LAYOUT, other)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, MASKED_HEADER.SIZE - 1), st.integers(1, 255))
def test_no_other_header_begins_a_payload(place: int, change: int) -> None:
    payload = bytearray(encode_payload(LAYOUT, PACKED, SEALED))
    payload[place] ^= change

    with pytest.raises(CodecError):
        check_payload(LAYOUT, payload)


@pytest.mark.parametrize(
    "other",
    [
        masked_plan(privacy=masked_noise(noise_multiplier=1.1)),
        masked_plan(privacy=masked_noise(adjacency="replace-one")),
        masked_plan(privacy=masked_noise(clipping="per-layer")),
        masked_plan(weighing=AttentiveWeights(attention_strength=0.5, grouping="tensor")),
        masked_plan(quorum=2),
    ],
)
def test_a_payload_of_another_grid_or_weighing_is_refused(other: object) -> None:
    theirs = masked_layout(other)  # type: ignore[arg-type]  # plans, as a parameter of the test
    payload = bytearray(LAYOUT.payload_bytes)
    payload[: MASKED_HEADER.SIZE] = MASKED_HEADER.encode(theirs.sha256)

    with pytest.raises(CodecError, match="another model, weighing or grid"):
        check_payload(LAYOUT, payload)


@pytest.mark.parametrize("part", ["packed vector", "seed"])
def test_a_part_of_another_size_is_not_sent(part: str) -> None:
    packed = PACKED[:-1] if part == "packed vector" else PACKED
    sealed = SEALED[:-1] if part == "seed" else SEALED

    with pytest.raises(CodecError, match=f"the {part} must have"):
        encode_payload(LAYOUT, packed, sealed)
