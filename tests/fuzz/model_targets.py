"""Readers of plans, releases, parameters, word lists, archives and arrays."""

from pathlib import Path

import numpy as np

from models.compression.release_delta import decode_delta, encode_delta
from models.compression.update_format import CompressedFormat
from models.plan.plan import PlanError, decode_plan
from models.plan.published_part import (
    PublishedPartError,
    PublishedRecord,
    decode_published,
    encode_published,
)
from models.plan.release_record import ReleaseError, ReleaseRecord, decode_release_record
from models.settings.compression import CompressionSettings
from models.settings.model import schema_of
from models.text.vocabulary import VocabularyError, decode_vocabulary
from models.vector.archives import ArraysError, read_arrays
from models.vector.codec import CodecError, decode, encode
from models.vector.tensor_file import TensorFileError, decode_tensors, encode_tensors
from tests.fuzz.hostile import zipped
from tests.fuzz.identity_targets import parties
from tests.fuzz.target import Prepared, Target, of_bytes, of_file
from tests.models.plan.test_plan import MODEL, PLAN

_SCHEMA = schema_of(MODEL)
_FLAT = np.linspace(-1, 1, _SCHEMA.element_count, dtype=np.float32)
_RECORD = ReleaseRecord(
    run="ab" * 16,
    round=1,
    parameters_sha256="0" * 64,
    schema_sha256="0" * 64,
    previous_sha256="0" * 64,
    metrics={"perplexity": 9.5},
    guarantee="none",
)


def _published(_folder: Path) -> Prepared:
    ours = parties()
    record = PublishedRecord(
        run="ab" * 16, client=ours.device.name, method="fedper", schema_sha256="0" * 64
    )
    seed = encode_published(record, {"weight": np.ones(3, np.float32)}, ours.device)
    return Prepared(
        lambda content: decode_published(content, authority=ours.authority.certificate), (seed,)
    )


def _update(form: CompressionSettings) -> Prepared:
    reader = CompressedFormat(_SCHEMA, form, told_count=0)
    return Prepared(reader.decode, (bytes(reader.encode(_FLAT, seed=1)),))


def _arrays(folder: Path) -> Prepared:
    path = folder / "whole.npz"
    np.savez(path, pixels=np.zeros((2, 3, 3, 1), np.uint8), labels=np.arange(2))
    seeds = [path.read_bytes(), zipped({"pixels.npy": b"none"})]
    np.savez_compressed(path, pixels=np.zeros(9), text=np.array("described"))
    return of_file(read_arrays, *seeds, path.read_bytes())(folder)


MODELS = (
    Target("plan", (PlanError,), of_bytes(decode_plan, PLAN.encode()), ("json",)),
    Target(
        "release-record",
        (ReleaseError,),
        of_bytes(decode_release_record, _RECORD.encode()),
        ("json",),
    ),
    Target("published-part", (PublishedPartError,), _published, ("text",)),
    Target(
        "tensor-file",
        (TensorFileError,),
        of_bytes(
            decode_tensors,
            bytes(encode_tensors({"a": np.ones((2, 3), np.float32)}, {"published": "{}"})),
        ),
        ("text",),
    ),
    Target(
        "parameters",
        (CodecError,),
        of_bytes(lambda payload: decode(_SCHEMA, payload), bytes(encode(_SCHEMA, _FLAT))),
        ("text",),
    ),
    Target(
        "update-sparse",
        (CodecError,),
        lambda _: _update(
            CompressionSettings(
                uplink="int8",
                keep="top",
                keep_fraction=0.1,
                error_feedback=True,
                entropy="zstd",
            )
        ),
        ("text",),
    ),
    Target(
        "release-delta",
        (CodecError,),
        of_bytes(
            lambda payload: decode_delta(_SCHEMA, None, payload, None),
            bytes(encode_delta(_SCHEMA, None, _FLAT, None)),
        ),
        ("text",),
    ),
    Target(
        "word-list",
        (VocabularyError,),
        of_bytes(decode_vocabulary, "<unk>\n<eos>\nsea\ncafé\n".encode()),
        ("text",),
    ),
    Target("arrays", (ArraysError,), _arrays, ("npz", "zip")),
)
