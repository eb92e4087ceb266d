"""Updates as they travel: their size, what belongs to them, and what is refused."""

import math
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.compression.update_format import CompressedFormat, UpdateFormat, update_format
from models.plan.plan import Plan, decode_plan, upload_schema
from models.settings.compression import CompressionSettings, check_compression
from models.settings.model import schema_of
from models.vector.codec import CodecError, encode
from models.vector.schema import Schema
from privacy.clipping.settings import AdaptiveClipping
from privacy.noise.calibrated_settings import CentralNoise, LocalNoise, TreeNoise
from privacy.noise.settings import NoNoise, PaperNoise, PrivacySettings
from tests.edge_client.training_plan import MODEL, make_plan

COUNT = schema_of(MODEL).element_count
UPDATE = np.random.default_rng(1).standard_normal(COUNT).astype(np.float32)
PART: dict[str, Any] = {"uplink": "int8", "keep": "top", "error_feedback": True}
INT8 = CompressionSettings(uplink="int8")
NORMS = PaperNoise(randomisation_magnitude=0.1, score="clean")
_BUDGET: Any = {
    "clipping_norm": 1.0,
    "noise_multiplier": 1.0,
    "delta": 1e-5,
    "epsilon_budget": 10.0,
}
GUARANTEED: dict[str, PrivacySettings] = {
    "local": LocalNoise(**_BUDGET),
    "central": CentralNoise(adjacency="zero-out", **_BUDGET),
    "ftrl": TreeNoise(adjacency="zero-out", min_separation=1, max_participation=1, **_BUDGET),
}
ADAPTIVE = NoNoise(clipping_norm=1.0, adaptive_clipping=AdaptiveClipping(count_noise_std=0.5))


def plan_of(compression: CompressionSettings | None = INT8, **changes: Any) -> Plan:
    return msgspec.structs.replace(make_plan(), compression=compression, **changes)


def format_of(compression: CompressionSettings | None = INT8, **changes: Any) -> UpdateFormat:
    return update_format(plan_of(compression, **changes), 1)


def test_without_compression_an_update_is_what_the_codec_writes() -> None:
    travels_as = format_of(None)

    payload = travels_as.encode(UPDATE, seed=1)

    assert payload == encode(travels_as.schema, UPDATE)
    assert (travels_as.decode(bytearray(payload)) == UPDATE).all()


@pytest.mark.parametrize(
    ("settings", "bits_a_block"),
    [
        (CompressionSettings(uplink="none"), 256 * 32),
        (CompressionSettings(uplink="bfloat16"), 256 * 16),
        (INT8, 32 + 256 * 8),
        (CompressionSettings(uplink="int4"), 32 + 256 * 4),
        (CompressionSettings(uplink="int4", block_size=32), 8 * (32 + 32 * 4)),
    ],
)
def test_the_size_follows_from_the_plan(settings: CompressionSettings, bits_a_block: int) -> None:
    model = msgspec.structs.replace(MODEL, vocabulary_size=512 * 8)
    plan = msgspec.structs.replace(make_plan(model=model), compression=settings)
    travels_as = update_format(plan, 1)
    count = travels_as.schema.element_count

    size = len(travels_as.encode(np.ones(count, np.float32), seed=1))

    # 48 bytes of header; values of 32 and 16 bits have no blocks, so none is filled up.
    filled = -count % 256 if settings.uplink.startswith("int") else 0
    missing = filled if settings.block_size == 256 else -count % 32
    whole_bits = bits_a_block * (count + missing) // 256
    assert size == travels_as.payload_bytes == 48 + whole_bits // 8


@pytest.mark.parametrize("uplink", ["none", "bfloat16", "int8", "int4"])
def test_an_update_comes_back_as_close_as_its_form_allows(uplink: Any) -> None:
    travels_as = format_of(CompressionSettings(uplink=uplink))

    found = travels_as.decode(travels_as.encode(UPDATE, seed=1))

    steps = {"none": 0, "bfloat16": 2**-7, "int8": 1 / 127, "int4": 1 / 7}
    assert np.abs(found - UPDATE).max() <= steps[uplink] * np.abs(UPDATE).max()


@pytest.mark.parametrize("privacy", [NORMS, ADAPTIVE])
def test_what_is_told_behind_an_update_is_never_rounded(privacy: PrivacySettings) -> None:
    plan = plan_of(CompressionSettings(uplink="int4"), privacy=privacy)
    travels_as = update_format(plan, 1)
    told_count = upload_schema(plan).element_count - COUNT
    told = np.linspace(1, 0.1, told_count, dtype=np.float32)

    found = travels_as.decode(travels_as.encode(np.concatenate([UPDATE, told]), seed=1))

    assert told_count > 0
    assert (found[COUNT:] == told).all()


def test_a_payload_of_other_settings_or_another_model_is_refused() -> None:
    payload = format_of().encode(UPDATE, seed=1)
    nearest = CompressionSettings(uplink="int8", error_feedback=True)

    with pytest.raises(CodecError, match="another model or another way of compressing"):
        format_of(nearest).decode(payload)
    with pytest.raises(CodecError, match=r"payload must be \d+ to \d+ contiguous bytes"):
        format_of(CompressionSettings(uplink="int4")).decode(payload)


@pytest.mark.parametrize(
    ("offset", "value", "text"),
    [
        (0, b"SOTTOPAR", "must start with b'SOTTOUPD'"),
        (8, struct.pack("<I", 2), "must be 1, got 2; this side is older"),
        (12, struct.pack("<I", 7), "reserved field must be 0, got 7"),
        (48, struct.pack("<f", 0.0), "a scale must lie in"),
    ],
)
def test_a_damaged_payload_is_refused(offset: int, value: bytes, text: str) -> None:
    payload = bytearray(format_of().encode(UPDATE, seed=1))
    payload[offset : offset + len(value)] = value

    with pytest.raises(CodecError, match=text):
        format_of().decode(payload)


def test_a_payload_that_is_cut_short_or_too_long_is_refused() -> None:
    payload = bytes(format_of().encode(UPDATE, seed=1))

    for wrong in (payload[:-1], payload + b"\0", b""):
        with pytest.raises(CodecError, match="contiguous bytes"):
            format_of().check_layout(wrong)


@given(st.integers(0, 400), st.integers(0, 255))
def test_one_changed_byte_never_does_more_than_change_the_update(place: int, byte: int) -> None:
    travels_as = format_of(CompressionSettings(uplink="int4"))
    payload = bytearray(travels_as.encode(UPDATE, seed=1))
    payload[place % len(payload)] = byte

    try:
        found = travels_as.decode(payload)
    except CodecError:
        return
    assert np.isfinite(found).all()
    assert found.shape == (COUNT,)


def test_a_part_of_an_update_travels_in_a_part_of_its_bytes() -> None:
    settings = CompressionSettings(
        uplink="none", keep="top", keep_fraction=0.25, error_feedback=True
    )
    travels_as = format_of(settings)

    payload = travels_as.encode(UPDATE, seed=1)
    found = travels_as.decode(payload)

    sent, marks = math.ceil(0.25 * COUNT), math.ceil(COUNT / 8)
    assert len(payload) == 48 + 4 * sent + marks
    assert (found != 0).sum() == sent
    assert (found[found != 0] == UPDATE[found != 0]).all()


def test_entropy_coding_loses_nothing_and_its_size_is_bounded() -> None:
    plain, squeezed = (
        format_of(CompressionSettings(uplink="int8", entropy=entropy))
        for entropy in ("none", "zstd")
    )
    typed = UPDATE.copy()
    typed[50:] = 0  # Most of it was not touched.

    payload = squeezed.encode(typed, seed=1)

    assert (squeezed.decode(payload) == plain.decode(plain.encode(typed, seed=1))).all()
    assert squeezed.least_bytes < len(payload) < plain.payload_bytes / 2
    assert squeezed.payload_bytes == plain.payload_bytes + 8
    for wrong in (payload[:-1], bytes(payload) + b"\0", payload[:40]):
        with pytest.raises(CodecError):
            squeezed.check_layout(wrong)


@pytest.mark.parametrize("mode", ["central", "ftrl"])
def test_entropy_coding_is_refused_where_its_size_would_tell_what_noise_hides(mode: str) -> None:
    text = f'compression.entropy must be "none" with privacy.mode = "{mode}"'

    with pytest.raises(ValueError, match=text):
        check_compression(CompressionSettings(uplink="int8", entropy="zstd"), GUARANTEED[mode])
    check_compression(CompressionSettings(uplink="int4", error_feedback=True), GUARANTEED[mode])
    check_compression(CompressionSettings(uplink="int8", entropy="zstd"), GUARANTEED["local"])


def test_what_does_not_fit_or_is_not_finite_is_never_sent() -> None:
    broken = UPDATE.copy()
    broken[3] = np.nan

    with pytest.raises(CodecError, match="must be finite"):
        format_of().encode(broken, seed=1)
    with pytest.raises(CodecError, match=rf"float32 of shape \({COUNT},\)"):
        format_of().encode(UPDATE[1:], seed=1)


def test_a_model_that_sends_nothing_has_a_payload_of_its_header() -> None:
    travels_as = CompressedFormat(Schema(()), INT8, told_count=0)

    payload = travels_as.encode(np.empty(0, np.float32), seed=1)

    assert len(payload) == 48
    assert travels_as.decode(payload).size == 0


def test_compression_travels_with_the_plan_and_a_plan_without_it_is_understood() -> None:
    plan = plan_of(CompressionSettings(uplink="int4", block_size=64, error_feedback=True))
    older = msgspec.json.decode(plan.encode())
    del older["compression"]

    assert decode_plan(plan.encode()) == plan
    assert decode_plan(msgspec.json.encode(older)).compression is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"uplink": "int3"}, "uplink"),
        ({"uplink": "int8", "block_size": 100}, "power of two in .*, got 100"),
        ({"uplink": "int8", "block_size": 8}, "got 8"),
        ({"uplink": "int8", "block_size": 131072}, "got 131072"),
        ({"uplink": "none", "error_feedback": True}, "nothing is lost"),
        ({"uplink": "int8", "entropy": "lzma"}, "entropy"),
        ({"uplink": "int8", "keep": "top", "error_feedback": True}, "keep_fraction belongs to"),
        ({"uplink": "int8", "keep_fraction": 0.1}, "keep_fraction belongs to"),
        ({"uplink": "int8", "keep": "top", "keep_fraction": 0.1}, "lost for good"),
        (PART | {"keep_fraction": 1.0}, r"in \(0, 1\), got 1.0"),
        (PART | {"keep_fraction": float("nan")}, "got nan"),
        ({"uplink": "none", "downlink_step": 0.5}, "belongs to downlink"),
        ({"uplink": "none", "downlink": "delta", "downlink_step": 0.3}, "power of two.*got 0.3"),
        ({"uplink": "none", "downlink": "delta", "downlink_step": 2.0}, "got 2.0"),
        ({"uplink": "none", "downlink": "delta", "downlink_step": 2.0**-25}, "power of two"),
        ({"uplink": "none", "downlink": "delta", "downlink_releases": 17}, r"in \[1, 16\], got 17"),
        ({"uplink": "int8", "level": 3}, "unknown field `level`"),
        ({}, "uplink"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert(settings, CompressionSettings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (CompressionSettings(uplink="float16"), 'uplink = "float16" was removed; use compression'),
        (
            CompressionSettings(
                uplink="int8", keep="random", keep_fraction=0.1, error_feedback=True
            ),
            'keep = "random" was removed; use compression.keep = "top", or',
        ),
        (
            CompressionSettings(uplink="none", rank=8, error_feedback=True),
            "rank = 8 was removed; use compression.keep",
        ),
    ],
)
def test_a_plan_of_a_removed_form_is_still_read_and_no_update_travels_by_it(
    settings: CompressionSettings, text: str
) -> None:
    # As a release keeps it that was made before.
    plan = plan_of(settings)

    assert decode_plan(plan.encode()) == plan
    with pytest.raises(ValueError, match=f"compression.{text}"):
        update_format(plan, 1)
